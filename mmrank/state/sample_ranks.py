"""Moving averages of the surrogate ranks of each positive."""

import torch
from torch import Tensor

from mmrank.autograd import inside_backward

from .base import check_count, check_share
from .sample_averages import SampleGroups
from .sample_state import SIZE_FIX, SampleState, check_sample_ids


def moving_ranks(old: Tensor, batch: Tensor, gamma: float) -> Tensor:
    """Moving averages of (2, ...) surrogate ranks, ``u <- (1 - gamma) u + gamma g``, float64.

    Source: SOAP (NeurIPS 2021), algorithm 1. A first visit (u = 0) takes g as it is; where g is not
    finite, u stays. Without gradient.
    """
    old, new = old.detach().double(), batch.detach().double()
    # In float32, as they are kept; the pair moves together.
    finite = new.float().isfinite().all(0)
    mixed = torch.where(old[1] > 0, (1 - gamma) * old + gamma * new, new)
    return torch.where(finite, mixed, torch.where(old[1] > 0, old, new))


class SampleRanks(SampleState):
    """``u`` of every sample as a positive of every class.

    8 bytes for each sample and class, 0 before the first visit as a positive. A positive that is
    several times in a batch, also on several ranks, takes one step with the mean of its g; one
    whose g is not finite takes none: an overflow must not spoil later batches. The columns
    ``u_positive`` and ``u_all`` are (classes * samples,) float32, class by class. ``gamma`` is the
    weight of the batch in (0, 1].
    """

    def __init__(
        self,
        num_samples: int,
        num_classes: int = 1,
        gamma: float = 0.9,
        load_state: bool = True,
        storage: str = 'device',
    ) -> None:
        check_share('gamma', gamma)
        check_count('num_samples', num_samples, fix=SIZE_FIX)
        if storage not in ('device', 'sharded'):
            raise ValueError(
                f"storage must be 'device' or 'sharded', got {storage!r}: "
                'which samples are positives is known on the device'
            )
        initial = {'u_positive': 0.0, 'u_all': 0.0}
        super().__init__(num_samples * num_classes, initial, storage, load_state)
        self.num_samples, self.num_classes = num_samples, num_classes
        self.gamma = gamma

    def entries_of(self, sample_idx: Tensor, device: torch.device) -> Tensor:
        """(n, C) int64 indices of the table, of (n,) ``sample_idx`` in ``[0, num_samples)``."""
        check_sample_ids(sample_idx, sample_idx.numel(), self.num_samples)
        ids = sample_idx.to(device, non_blocking=True).long()
        return ids[:, None] + self.num_samples * torch.arange(self.num_classes, device=device)

    def step(self, entries: Tensor, batch: Tensor) -> Tensor:
        """(2, S) float64 u after a batch of (2, S) g, without storing it, at entries of shape S."""
        old = self.fetch(entries.flatten(), batch.device)
        return moving_ranks(old.view(batch.shape), batch, self.gamma)

    @torch.no_grad()
    def update(self, entries: Tensor, batch: Tensor, mask: Tensor) -> None:
        """Take in a batch, the same on all ranks; ``mask`` is False for padding.

        Does nothing in eval mode, nor when a checkpointed forward is recomputed.
        """
        if not self.training or inside_backward():
            return
        entries, batch, mask = entries.flatten(), batch.flatten(1), mask.flatten()
        if self.group is not None:
            # All ranks know the batch: each takes what is in its shard.
            here = entries % self.shard.parts == self.shard.part
            entries, batch, mask = entries[here], batch[:, here], mask[here]
        groups = SampleGroups(entries)
        usable = mask & batch.float().isfinite().all(0)
        mean = torch.stack([groups.mean(x, usable) for x in batch])
        old = self.read(entries, batch.device)
        new = moving_ranks(old, mean, self.gamma).to(old.dtype)
        # Padding may share its index with a positive: both store the same.
        self.store(entries, torch.where(groups.sum(usable.double()) > 0, new, old))
