"""Moving averages of what each batch measures, one in all or one per class."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from mmrank.distributed import all_reduce_sum
from mmrank.errors import UserError
from mmrank.settings import check_count, check_within
from mmrank.tensors import as_divisor

from .base import SavedState, ScoreRange, rows_of_lists

MEAN_MODES = ('plain', 'exact', 'off')


class RunningMean(SavedState):
    """EMA of a batch mean: one in all, or one for each of ``size`` rows.

    ``mean <- (1-lam) mean + lam m``, where m is the mean of the values of the batch. The first
    batch with a value sets the mean; a batch without one, or whose mean is not finite in float32,
    leaves it. The state is the same on all ranks and for any world size. ``momentum`` is lam in
    ``(0, 1]``.
    """

    mean: Tensor  # (size,) float32 buffer, in units of the values
    num_updates: Tensor  # (size,) float64 buffer, batches that each mean saw

    def __init__(self, size: int = 1, momentum: float = 0.01) -> None:
        super().__init__()
        check_count('size', size)
        check_within('(0, 1]', momentum=momentum)
        self.momentum = momentum
        self.add_state('mean', (size,))
        self.add_state('num_updates', (size,), dtype=torch.float64)

    def update(
        self, values: Tensor, mask: Tensor, group=None, rows: Tensor | None = None, on_host=None
    ) -> Tensor:
        """Take in (L, P) values of a batch and return (1,) or (L,) float32 means for its lists.

        ``mask`` is (L, P) bool, or float weights >= 0: a value of weight w counts as w values.
        Nothing changes where the state does not move, see :class:`SavedState`. The ranks of
        ``group`` hold different values. ``rows`` are (L,) integers, the mean that each list belongs
        to, such as the class of a query; lists of one row are pooled. None: with ``size`` 1 all
        lists are pooled, otherwise list i is row i. Ignored with ``size`` 1.
        ``on_host``: see ``RankedLists``; None: not known.
        """
        batch_mean, usable = self.mean_of_batch(values, mask, group, rows)
        if self.moves_now(on_host):
            self.step(batch_mean, usable, on_host)
        return self.of_lists(self.mean.clone(), rows)

    def mean_of_batch(
        self, values: Tensor, mask: Tensor, group=None, rows: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(size,) float64 means, and bool whether a row has one; see :meth:`update`."""
        size = self.mean.numel()
        if size > 1:
            rows = rows_of_lists(rows, len(values), size)
        counted = torch.where(mask > 0, values.detach().double(), 0)
        if mask.is_floating_point():
            counted = counted * mask
        totals = torch.stack([counted.sum(1), mask.sum(1).double()])
        if size == 1:
            totals = totals.sum(1, keepdim=True)
        elif rows is not None:
            same = rows[:, None] == rows
            pooled = torch.where(same, totals[:, None], 0).sum(2)
            # Lists of one row all write the same sums, so the order of the writes cannot show, as
            # the order of an atomic addition would.
            totals = totals.new_zeros(2, size)
            totals[:, rows] = pooled
        if group is not None:
            totals = all_reduce_sum(totals, group)
        total, number = totals
        usable = number > 0
        batch_mean = total / torch.where(usable, number, 1)
        return batch_mean, usable & batch_mean.float().isfinite()

    def of_lists(self, values: Tensor, rows: Tensor | None) -> Tensor:
        """Values of the means, (size,), for the lists with these rows."""
        if rows is None or self.mean.numel() == 1:
            return values
        return values[rows.long()]

    def step(self, batch_mean: Tensor, usable: Tensor, on_host: bool | None) -> None:
        """Average the (size,) means of a batch in, where they are usable."""
        mean = self.mean.double()
        new = self.averaged(mean, self.num_updates > 0, batch_mean)
        usable = usable & new.float().isfinite()
        self.mean.copy_(torch.where(usable, new, mean))
        self.num_updates += usable

    def averaged(self, mean: Tensor, seen: Tensor, batch_mean: Tensor) -> Tensor:
        """The means after a batch, where a batch was seen before, or this is the first."""
        average = (1 - self.momentum) * mean + self.momentum * batch_mean
        return torch.where(seen, average, batch_mean)


class MeanPositiveScore(RunningMean):
    """EMA of the mean positive score with variance reduction.

    ``mu_k = (1-lam) mu_{k-1} + lam m_k(theta_k) + (1-lam) (m_k(theta_k) - m_k(theta_{k-1}))``,
    where ``m_k(theta)`` is the mean positive score of batch k under the weights ``theta``. Source:
    stable AP (2025), eq. 6.

    - ``mode``: ``exact``: the formula unchanged. ``m_k(theta_{k-1})`` comes from a forward inside
      :meth:`probing`, which :class:`mmrank.engine.hooks.PreviousWeightsHook` runs; without one
      :meth:`update` raises RuntimeError. ``plain``: without the last term; lags behind a drifting
      score. ``off``: mu is the mean of the current batch. A number: mu for ever, a biased estimate
      (the paper's ablation, table 4, rows 1 and 2).
    - ``score_range``: Declared range of the scores, which a loss may change from batch to batch. A
      batch whose mean is further from mu than its width plus the size of mu counts as one at that
      distance, and a step of ``exact`` beyond it as none; the first such batch is warned of. None:
      every finite mean counts in full.
    """

    def __init__(
        self,
        size: int = 1,
        momentum: float = 0.01,
        mode: str | float = 'plain',
        score_range: ScoreRange | None = None,
    ) -> None:
        super().__init__(size, momentum)
        self.value = None
        if not isinstance(mode, str):
            if not math.isfinite(mode):
                raise UserError(f'mean_mode={mode!r} must be finite. Fix: a number such as 0.0')
            self.value = float(mode)
            self.mean.fill_(self.value)
        elif mode not in MEAN_MODES:
            raise UserError(
                f'mean_mode={mode!r} is unknown. Fix: one of {", ".join(MEAN_MODES)}, or a number'
            )
        self.mode = mode
        self.score_range = score_range
        self._probing = False
        self._previous: Tensor | None = None

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Within, :meth:`update` only notes ``m_k(theta_{k-1})``."""
        self._probing = True
        self._previous = None
        try:
            yield
        finally:
            self._probing = False

    def mean_of_batch(self, *args, **kwargs) -> tuple[Tensor, Tensor]:
        batch_mean, usable = super().mean_of_batch(*args, **kwargs)
        if self._probing:
            self._previous = batch_mean
        return batch_mean, usable

    def step(self, batch_mean: Tensor, usable: Tensor, on_host: bool | None) -> None:
        if self.value is not None or self._probing:
            return
        if self.score_range is not None and self.mode != 'off':
            before = self.mean.double(), self.num_updates > 0, self.score_range
            batch_mean = self.within_reach(batch_mean, usable, *before, on_host=on_host)
        super().step(batch_mean, usable, on_host)

    def averaged(self, mean: Tensor, seen: Tensor, batch_mean: Tensor) -> Tensor:
        if self.mode == 'off':
            return batch_mean
        average = super().averaged(mean, seen, batch_mean)
        if self.mode != 'exact':
            return average
        if self._previous is None:
            raise RuntimeError(
                "mode='exact' requires the batch's mean positive score under the previous weights: "
                "add custom_hooks=[dict(type='mmrank.PreviousWeightsHook')] or use mode='plain'"
            )
        # m_k(theta_k) - m_k(theta_{k-1}), 0 where it cannot be right.
        change = batch_mean - self._previous
        self._previous = None
        is_right = seen & change.isfinite()
        if self.score_range is not None:
            low, high = self.score_range
            is_right &= change.abs() <= high - low + mean.abs()
        return average + (1 - self.momentum) * torch.where(is_right, change, 0)

    def _load_from_state_dict(self, *args, **kwargs) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        if self.value is not None:
            # A checkpoint may hold the mean of another mode.
            self.mean = torch.full_like(self.mean, self.value)


class CappedImbalance(RunningMean):
    """``rho = min(n-/n+, 1/EMA(X))``, X the mean weighted risk of a batch.

    The cap keeps the argument ``rho X`` of stable AP's h near 1 while X falls, until the paper's
    ``rho = n-/n+`` is reached: far above 1 h is flat. With X of the batch itself every step would
    have the same size; the EMA lets a batch with a larger risk count for more, but for at most
    :attr:`LARGEST_STEP` times the mean.
    """

    LARGEST_STEP = 10.0

    def __init__(self, size: int = 1, momentum: float = 0.1) -> None:
        super().__init__(size, momentum)

    def rho(
        self, risk: Tensor, ratio: Tensor, counted: Tensor, group=None, rows=None, on_host=None
    ) -> Tensor:
        """Take in the (L,) risks X >= 0 of a batch; returns (L,) float64 rho > 0 for its lists.

        Where the EMA saw no batch yet, X is the risk of the list itself. ``ratio`` is n-/n+ of the
        lists; see :meth:`RunningMean.update` for the others.
        """
        risk = risk.detach().double()
        mean = self.update(risk[:, None], counted[:, None], group, rows, on_host)
        seen = self.of_lists(self.num_updates > 0, rows)
        return torch.minimum(ratio, 1 / torch.where(seen, mean.double(), risk))

    def averaged(self, mean: Tensor, seen: Tensor, batch_mean: Tensor) -> Tensor:
        # A mean of 0 (all ranked right so far) must be able to rise again.
        largest = torch.where(mean > 0, self.LARGEST_STEP * mean, batch_mean)
        return super().averaged(mean, seen, torch.minimum(batch_mean, largest))


class ScoreSpread(RunningMean):
    """Geometric EMA of the standard deviation of the negatives within a list.

    ``log sigma <- (1-lam) log sigma + lam log s``, s the mean over the lists of a batch. A batch
    counts as one within a factor of :attr:`LARGEST_STEP` of the average, and the first within
    :attr:`RANGE`, so that a broken score widens no margin for long. Infinite scores do not count,
    and a list with fewer than two negatives, which has no spread, does not either.
    """

    LARGEST_STEP = 10.0
    RANGE = (0.01, 100.0)

    @torch.no_grad()
    def log_spreads(self, scores: Tensor, negatives: Tensor, group=None) -> Tensor:
        """(L,) float64 logarithms of the spread in each of (L, N) scores, within :attr:`RANGE`.

        ``negatives`` are (L, N) bool, or float weights >= 0. NaN for fewer than two negatives: one
        of weight 2 is two. The ranks of ``group`` hold parts of the same lists.
        """
        is_finite = scores.isfinite()
        counted = torch.where(is_finite, negatives, 0).double()
        x = torch.where(counted > 0, scores, 0).double()
        entries = (counted > 0).sum(1).double()
        totals = torch.stack([counted.sum(1), (counted * x).sum(1), entries])
        number, total, entries = all_reduce_sum(totals, group)
        has_spread = (number > 1) | (entries > 1)
        number = as_divisor(number)
        # Around the mean: squares of scores far from 0 would cancel.
        x = torch.where(counted > 0, x - (total / number)[:, None], 0)
        squares = all_reduce_sum((counted * x.square()).sum(1), group)
        log_spread = (squares / number).sqrt().clamp(*self.RANGE).log()
        return torch.where(has_spread, log_spread, torch.nan)

    def average(
        self, log_spreads: Tensor, counted: Tensor, default: float = 1.0, group=None, on_host=None
    ) -> Tensor:
        """Take in (L,) :meth:`log_spreads` of a batch; returns (1,) or (L,) float64 spreads > 0.

        ``counted`` are (L,) bool, or weights, of the lists that have a say. The ranks of ``group``
        hold other lists. Where no batch was seen yet, it is the value of the batch itself, and
        ``default`` if that has none.
        """
        mask = (counted * ~log_spreads.isnan())[:, None]
        batch_mean, usable = self.mean_of_batch(log_spreads[:, None], mask, group)
        if self.moves_now(on_host):
            self.step(batch_mean, usable, on_host)
        batch_mean = torch.where(usable, batch_mean, math.log(default))
        return torch.where(self.num_updates > 0, self.mean.double(), batch_mean).exp()

    def averaged(self, mean: Tensor, seen: Tensor, batch_mean: Tensor) -> Tensor:
        most = math.log(self.LARGEST_STEP)
        near = torch.where(seen, batch_mean.clamp(mean - most, mean + most), batch_mean)
        return super().averaged(mean, seen, near)
