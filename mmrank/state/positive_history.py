"""What is kept of each positive: moving averages and thresholds, by sample and class."""

import math

import torch
from torch import Tensor

from mmrank.autograd import inside_backward
from mmrank.checks import check_positive, check_within

from .base import SavedState
from .sample_averages import moving_log_mean
from .sample_state import SampleState, check_sample_ids


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


class PositiveState(SampleState):
    """Base of numbers that are kept for every sample as a positive of every class.

    The states are (classes * samples,), class by class.
    """

    def __init__(self, num_samples: int, num_classes: int, load_state: bool) -> None:
        super().__init__(num_samples * num_classes, load_state)
        self.num_samples = num_samples
        self.num_classes = num_classes

    def index_of(self, sample_idx: Tensor, device: torch.device) -> Tensor:
        """(n, C) int64 indices of the states, of (n,) ``sample_idx`` in ``[0, num_samples)``."""
        check_sample_ids(sample_idx, sample_idx.numel(), self.num_samples)
        ids = sample_idx.to(device, non_blocking=True).long()
        return ids[:, None] + self.num_samples * torch.arange(self.num_classes, device=device)

    def values_at(self, index: Tensor) -> Tensor:
        """(states, S) float64, at indices of shape S."""
        entries = self.fetch(index.flatten(), index.device)
        return entries.view(-1, *index.shape).double()

    def step(self, index: Tensor, batch: Tensor) -> Tensor:
        """(states, S) float64 after a batch, without storing them, at indices of shape S."""
        return self.stepped(self.values_at(index), batch)

    def update(self, index: Tensor, batch: Tensor, mask: Tensor) -> None:
        """Take in (numbers, S) of a batch, the same on all ranks, if the state moves.

        ``mask`` is False for padding.
        """
        if self.moves:
            self.take(index.flatten(), batch.flatten(1), mask.flatten())


class SampleRanks(PositiveState):
    """``u_positive`` and ``u_all``, moving averages of the surrogate ranks of each positive.

    0 before the first visit. ``gamma`` is the weight of the batch in (0, 1].
    """

    def __init__(
        self, num_samples: int, num_classes: int = 1, gamma: float = 0.9, load_state: bool = True
    ) -> None:
        check_within('(0, 1]', gamma=gamma)
        super().__init__(num_samples, num_classes, load_state)
        self.gamma = gamma
        self.add_state('u_positive', (self.size,))
        self.add_state('u_all', (self.size,))

    def stepped(self, entries: Tensor, batch: Tensor) -> Tensor:
        return moving_ranks(entries, batch, self.gamma)


class SampleTilts(PositiveState):
    """``log_u`` of each positive: the log of a moving average, -inf before the first visit.

    ``u <- (1 - gamma) u + gamma g``; a batch says log g. ``gamma`` is in (0, 1].
    """

    says_log = True

    def __init__(
        self, num_samples: int, num_classes: int = 1, gamma: float = 0.9, load_state: bool = True
    ) -> None:
        check_within('(0, 1]', gamma=gamma)
        super().__init__(num_samples, num_classes, load_state)
        self.gamma = gamma
        self.add_state('log_u', (self.size,), -math.inf)

    def stepped(self, entries: Tensor, batch: Tensor) -> Tensor:
        return moving_log_mean(entries, batch, self.gamma)


class SampleThresholds(PositiveState):
    """``threshold`` of each positive: the share of its losses above is ``max_fpr``.

    ``s <- s - eta (1 - share / max_fpr)`` from 0; a batch says the share of losses above s.
    """

    def __init__(
        self,
        num_samples: int,
        num_classes: int = 1,
        max_fpr: float = 0.2,
        eta: float = 0.1,
        load_state: bool = True,
    ) -> None:
        check_within('(0, 1]', max_fpr=max_fpr)
        check_positive(eta=eta)
        super().__init__(num_samples, num_classes, load_state)
        self.max_fpr = max_fpr
        self.eta = eta
        self.add_state('threshold', (self.size,))

    def stepped(self, entries: Tensor, batch: Tensor) -> Tensor:
        return entries - self.eta * (1 - batch / self.max_fpr)


class RunningLogMean(SavedState):
    """``log w`` of ``size`` lists: logs of moving averages, -inf before the first batch."""

    log_mean: Tensor  # (size,) float32 buffer

    def __init__(self, size: int = 1, gamma: float = 0.9) -> None:
        super().__init__()
        check_within('(0, 1]', gamma=gamma)
        self.gamma = gamma
        self.add_state('log_mean', (size,), -math.inf)
        #: What the last forward started from, which one that is run again starts from, too.
        self._before = self.log_mean

    def update(self, log_batch: Tensor) -> Tensor:
        """(size,) float64 log w after the (size,) logs of a batch, the same on all ranks.

        It is stored if the state moves.
        """
        again = self.training and inside_backward()
        before = self._before if again else self.log_mean.clone()
        new = moving_log_mean(before, log_batch.double(), self.gamma)
        if self.moves:
            self._before = before
            self.log_mean.copy_(torch.where(new.float().isfinite(), new, self.log_mean))
        return new
