"""Moving averages of the ranks of each positive, by sample and class."""

import torch
from torch import Tensor

from mmrank.checks import check_count, check_within

from .sample_averages import SampleGroups
from .sample_state import SIZE_FIX, SampleState, check_sample_ids


def moving_ranks(old: Tensor, batch: Tensor, gamma: float) -> Tensor:
    """Moving averages of (2, ...) surrogate ranks, ``u <- (1 - gamma) u + gamma g``, float64.

    Source: SOAP (NeurIPS 2021), algorithm 1. A first visit (u = 0) takes g as it is; where g is not
    finite, u stays. Without gradient.
    """
    old = old.detach().double()
    new = batch.detach().double()
    # In float32, as they are kept; the pair moves together.
    finite = new.float().isfinite().all(0)
    mixed = torch.where(old[1] > 0, (1 - gamma) * old + gamma * new, new)
    return torch.where(finite, mixed, torch.where(old[1] > 0, old, new))


class SampleRanks(SampleState):
    """``u_positive`` and ``u_all``, moving averages of the surrogate ranks of each positive.

    0 before the first visit. They are kept for every sample as a positive of every class: (classes
    * samples,) float32, class by class. A positive that is several times in a batch, also on
    several ranks, takes one step with the mean of what the batch says; one of which that is not
    finite takes none: an overflow must not spoil later batches. ``gamma`` is the weight of the
    batch in (0, 1].
    """

    def __init__(
        self, num_samples: int, num_classes: int = 1, gamma: float = 0.9, load_state: bool = True
    ) -> None:
        check_within('(0, 1]', gamma=gamma)
        check_count('num_samples', num_samples, fix=SIZE_FIX)
        initial = {'u_positive': 0.0, 'u_all': 0.0}
        super().__init__(num_samples * num_classes, initial, load_state)
        self.num_samples = num_samples
        self.num_columns = num_classes
        self.gamma = gamma

    def index_of(self, sample_idx: Tensor, device: torch.device) -> Tensor:
        """(n, C) int64 indices of the table, of (n,) ``sample_idx`` in ``[0, num_samples)``."""
        check_sample_ids(sample_idx, sample_idx.numel(), self.num_samples)
        ids = sample_idx.to(device, non_blocking=True).long()
        return ids[:, None] + self.num_samples * torch.arange(self.num_columns, device=device)

    def step(self, index: Tensor, batch: Tensor) -> Tensor:
        """(2, S) float64 after a batch, without storing them, at indices of shape S."""
        found = self.fetch(index.flatten(), index.device)
        old = found.view(len(self.names), *index.shape).double()
        return moving_ranks(old, batch, self.gamma)

    def update(self, index: Tensor, batch: Tensor, mask: Tensor) -> None:
        """Take in a batch, the same on all ranks, if the state moves.

        ``mask`` is False for padding.
        """
        if not self.moves:
            return
        index = index.flatten()
        batch = batch.detach().flatten(1)
        mask = mask.flatten()
        groups = SampleGroups(index)
        usable = mask & batch.float().isfinite().all(0)
        mean = torch.stack([groups.mean(x, usable) for x in batch])
        old = self.read(index, batch.device)
        new = moving_ranks(old, mean, self.gamma).to(old.dtype)
        # Padding may share its index with a positive: both store the same.
        self.store(index, torch.where(groups.sum(usable.double()) > 0, new, old))
