"""Moving averages of the ranks of each positive, by sample and class."""

import torch
from torch import Tensor

from mmrank.settings import check_within

from .sample_state import SampleState, check_sample_ids


def _moving_ranks(old: Tensor, batch: Tensor, gamma: float) -> Tensor:
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
    * samples,) float32, class by class. ``gamma`` is the weight of the batch in (0, 1].
    """

    u_positive: Tensor
    u_all: Tensor

    def __init__(self, num_samples: int, num_classes: int = 1, gamma: float = 0.9) -> None:
        check_within('(0, 1]', gamma=gamma)
        super().__init__(num_samples * num_classes)
        self.num_samples = num_samples
        self.num_classes = num_classes
        self.gamma = gamma
        self.add_state('u_positive', (self.size,))
        self.add_state('u_all', (self.size,))

    def index_of(self, sample_idx: Tensor, device: torch.device) -> Tensor:
        """(n, C) int64 indices of the states, of (n,) ``sample_idx`` in ``[0, num_samples)``."""
        check_sample_ids(sample_idx, sample_idx.numel(), self.num_samples)
        ids = sample_idx.to(device, non_blocking=True).long()
        return ids[:, None] + self.num_samples * torch.arange(self.num_classes, device=device)

    def step(self, index: Tensor, batch: Tensor) -> Tensor:
        """(2, S) float64 after a batch, without storing them, at indices of shape S."""
        entries = self.fetch(index.flatten(), index.device)
        return _moving_ranks(entries.view(2, *index.shape), batch, self.gamma)

    def update(self, index: Tensor, batch: Tensor, counts: Tensor) -> None:
        """Take in (2, S) of a batch, the same on all ranks, if the state moves.

        ``counts`` says how often each positive counts: bool or floats, 0 for padding.
        """
        if self.moves:
            self.take(index.flatten(), batch.flatten(1), counts.flatten())

    def stepped(self, entries: Tensor, batch: Tensor) -> Tensor:
        return _moving_ranks(entries, batch, self.gamma)
