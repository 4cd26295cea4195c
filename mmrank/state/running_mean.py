"""Moving averages of what each batch measures, one in all or one per class."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

import torch
from torch import Tensor, nn

from mmrank.autograd import can_sync
from mmrank.checks import check_count, check_within
from mmrank.distributed import all_reduce_sum
from mmrank.errors import UserError

from .base import SavedState, check_rows

MEAN_MODES = ('plain', 'exact', 'off')
ScoreRange = tuple[float | Tensor, float | Tensor]

#: States that have warned of an outlier; a copy of one warns for itself.
_warned: WeakSet[nn.Module] = WeakSet()


def within_reach(
    values: Tensor, mean: Tensor, seen: Tensor, score_range: ScoreRange, widths: float = 1.0
) -> Tensor:
    """Clip what a batch measured to what a declared score range explains; within, bit for bit.

    An average of weight 0.01 would need a thousand batches to forget a score of 1e6, of a broken
    image. ``widths`` of the range are allowed, and the size of the ``mean`` before the batch, so
    that averages of scores far outside of the range move and return as ever. Where it is not
    ``seen`` the values are compared with the range itself.
    """
    low, high = score_range
    reach = widths * (high - low)
    free = torch.where(seen, reach + mean.abs(), reach)
    least = torch.where(seen, mean, low) - free
    most = torch.where(seen, mean, high) + free
    return torch.maximum(torch.minimum(values, most), least)


def warn_of_outlier(state: nn.Module, what: str, clipped: Tensor) -> None:
    """Warn once for a state that ``what`` was clipped; on a GPU, which must not wait, never."""
    if not can_sync(clipped) or state in _warned or not clipped.any():
        return
    _warned.add(state)
    warnings.warn(
        f'{what} of a batch lies far outside of what score_range explains; it was clipped before '
        'it was averaged. Look for a broken sample or a diverging model, or declare the range that '
        'the scores have. This is said once',
        stacklevel=2,
    )


class RunningMean(SavedState):
    """EMA of a batch mean: one in all, or one for each of ``size`` rows.

    ``mean <- (1-lam) mean + lam m``, where m is the mean of the values of the batch. The first
    batch with a value sets the mean; a batch without one, or whose mean is not finite in float32,
    leaves it. The state is the same on all ranks and for any world size. ``momentum`` is lam in
    ``(0, 1]``.
    """

    mean: Tensor  # (size,) float32 buffer, in units of the values
    num_updates: Tensor  # (size,) int64 buffer, batches that each mean saw

    def __init__(self, size: int = 1, momentum: float = 0.01) -> None:
        super().__init__()
        check_count('size', size)
        check_within('(0, 1]', momentum=momentum)
        self.momentum = momentum
        self.add_state('mean', (size,))
        self.add_state('num_updates', (size,), dtype=torch.long)

    def update(
        self, values: Tensor, mask: Tensor, group=None, rows: Tensor | None = None
    ) -> Tensor:
        """Take in (L, P) values of a batch and return (1,) or (L,) float32 means for its lists.

        Nothing changes where the state does not move, see :class:`TrainingState`. The ranks of
        ``group`` hold different values. ``rows`` are (L,) integers, the mean that each list belongs
        to, such as the class of a query; lists of one row are pooled. None: with ``size`` 1 all
        lists are pooled, otherwise list i is row i. Ignored with ``size`` 1.
        """
        batch_mean, usable = self.mean_of_batch(values, mask, group, rows)
        if self.moves:
            self.step(batch_mean, usable)
        return self.of_lists(self.mean.clone(), rows)

    def mean_of_batch(
        self, values: Tensor, mask: Tensor, group, rows: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """(size,) float64 means, and bool whether a row has one; see :meth:`update`."""
        size = self.mean.numel()
        if rows is None and size not in (1, values.size(0)):
            raise ValueError(
                f'the state holds {size} means but the scores have {values.size(0)} lists; set '
                f'num_classes={values.size(0)}, or pass the class of each list'
            )
        sums = torch.where(mask, values.detach().double(), 0).sum(1)
        totals = torch.stack([sums, mask.sum(1).double()])
        if size == 1:
            totals = totals.sum(1, keepdim=True)
        elif rows is not None:
            check_rows('list_classes', rows, values.size(0), size)
            totals = _pooled(totals, rows, size)
        totals = all_reduce_sum(totals, group)
        batch_mean = totals[0] / totals[1].clamp(min=1)
        return batch_mean, (totals[1] > 0) & batch_mean.float().isfinite()

    def of_lists(self, values: Tensor, rows: Tensor | None) -> Tensor:
        """Values of the means, (size,), for the lists with these rows."""
        if rows is None or self.mean.numel() == 1:
            return values
        return values[rows.long()]

    def step(self, batch_mean: Tensor, usable: Tensor) -> None:
        """Average the (size,) means of a batch in."""
        mean, seen = self.before()
        average = (1 - self.momentum) * mean + self.momentum * batch_mean
        self.store(torch.where(seen, average, batch_mean), usable)

    def before(self) -> tuple[Tensor, Tensor]:
        """(size,) float64 means before a step, and bool whether a batch has set them."""
        mean = self.mean.double()
        # An infinite mean of an old checkpoint starts afresh.
        return mean, (self.num_updates > 0) & mean.isfinite()

    def store(self, mean: Tensor, usable: Tensor) -> None:
        """Set the means of the usable rows, and count the batch for them."""
        usable = usable & mean.float().isfinite()
        self.mean.copy_(torch.where(usable, mean, self.mean.double()))
        self.num_updates += usable


def _pooled(totals: Tensor, rows: Tensor, size: int) -> Tensor:
    """(2, size) sums of the (2, L) totals of the lists of each row."""
    same = rows[:, None] == rows
    finite = totals.isfinite().all(0)
    pooled = torch.where(finite, totals, 0) @ same.double()
    # A class with a broken score is left out, not all classes.
    broken = (same & ~finite).any(1)
    # Lists of one row all write the same pooled value, so the order of the writes cannot show, as
    # the order of an atomic addition would.
    found = totals.new_zeros(2, size)
    found[:, rows.long()] = torch.where(broken, torch.nan, pooled)
    return found


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
    - ``score_range``: Declared range of the scores. A batch whose mean is further from mu than its
      width plus the size of mu counts as one at that distance, and a step of ``exact`` beyond it as
      none; the first such batch is warned of. None: every finite mean counts in full. A batch may
      have a range of its own.
    """

    def __init__(
        self,
        size: int = 1,
        momentum: float = 0.01,
        mode: str | float = 'plain',
        score_range: tuple[float, float] | None = None,
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

    def update(
        self,
        values: Tensor,
        mask: Tensor,
        group=None,
        rows: Tensor | None = None,
        score_range: ScoreRange | None = None,
    ) -> Tensor:
        """See :meth:`RunningMean.update`; ``score_range`` is the batch's, None the state's."""
        batch_mean, usable = self.mean_of_batch(values, mask, group, rows)
        if self._probing:
            self._previous = batch_mean
        elif self.value is None and self.moves:
            self.step(batch_mean, usable, score_range or self.score_range)
        return self.of_lists(self.mean.clone(), rows)

    def step(
        self, batch_mean: Tensor, usable: Tensor, score_range: ScoreRange | None = None
    ) -> None:
        """Eq. 6, of a batch mean that is brought within reach of ``score_range``."""
        if self.mode == 'off':
            self.store(batch_mean, usable)
            return
        mean, seen = self.before()
        bounded = batch_mean
        if score_range is not None:
            bounded = within_reach(batch_mean, mean, seen, score_range)
            warn_of_outlier(self, 'the mean positive score', (bounded != batch_mean) & usable)
        average = (1 - self.momentum) * mean + self.momentum * bounded
        if self.mode == 'exact':
            change = self._change(mean, bounded, score_range)
            average = average + (1 - self.momentum) * change
        self.store(torch.where(seen, average, bounded), usable)

    def _change(self, mean: Tensor, batch_mean: Tensor, score_range: ScoreRange | None) -> Tensor:
        """``m_k(theta_k) - m_k(theta_{k-1})``, 0 where it cannot be right."""
        previous = self._previous
        self._previous = None
        if previous is None:
            raise RuntimeError(
                "mode='exact' requires the batch's mean positive score under the previous weights: "
                "add custom_hooks=[dict(type='mmrank.PreviousWeightsHook')] or use mode='plain'"
            )
        change = batch_mean - previous
        usable = change.isfinite()
        if score_range is not None:
            low, high = score_range
            usable &= change.abs() <= high - low + mean.abs()
        return torch.where(usable, change, 0)

    def _load_from_state_dict(self, *args) -> None:
        super()._load_from_state_dict(*args)
        if self.value is not None:
            # A checkpoint may hold the mean of another mode.
            self.mean = torch.full_like(self.mean, self.value)


class CappedImbalance(RunningMean):
    """``rho = min(n-/n+, 1/EMA(X))``, X the mean weighted risk of a batch.

    With one list, rho and h only scale the step: h(x) has the slope ``1/(2 h (1 + x)^2)``, so an
    argument ``rho X`` far above 1 leaves almost no gradient. The paper's ``rho = n-/n+`` is 10^3 to
    10^4 for the anchors of a detector. The cap keeps the argument near 1 while X falls, until the
    paper's rho is reached. Of X of the batch itself every step would have the same size; the EMA
    lets a batch with a larger risk count for more, but for at most :attr:`LARGEST_STEP` times the
    mean, and the first for at most ``largest``.
    """

    TARGET = 1.0
    LARGEST_STEP = 10.0

    def __init__(self, size: int = 1, momentum: float = 0.1, largest: float | None = None) -> None:
        super().__init__(size, momentum)
        self.largest = math.inf if largest is None else largest

    def rho(
        self,
        risk: Tensor,
        ratio: Tensor,
        has_positive: Tensor,
        group=None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Take in the (L,) risks X >= 0 of a batch; returns (L,) float64 rho > 0 for its lists.

        Where the EMA saw no batch yet, X is the risk of the list itself. ``ratio`` is n-/n+ of the
        lists; lists without positives are ignored; see :meth:`RunningMean.update` for ``group`` and
        ``rows``.
        """
        risk = risk.detach().double()
        mean = self.update(risk[:, None], has_positive[:, None], group, rows)
        seen = self.of_lists(self.num_updates > 0, rows)
        mean = torch.where(seen, mean.double(), risk)
        return torch.minimum(ratio, self.TARGET / mean)

    def step(self, batch_mean: Tensor, usable: Tensor) -> None:
        mean, seen = self.before()
        # A mean of 0 (all ranked right so far) must be able to rise again.
        largest = torch.where(mean > 0, self.LARGEST_STEP * mean, batch_mean)
        bounded = torch.minimum(batch_mean, largest)
        average = (1 - self.momentum) * mean + self.momentum * bounded
        self.store(torch.where(seen, average, batch_mean.clamp(max=self.largest)), usable)


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
    def log_spreads(self, scores: Tensor, is_negative: Tensor, group=None) -> Tensor:
        """(L,) float64 logarithms of the spread in each of (L, N) scores, within :attr:`RANGE`.

        NaN where fewer than two negatives have none. The ranks of ``group`` hold parts of the same
        lists.
        """
        counted = is_negative & scores.isfinite()
        x = torch.where(counted, scores, 0).double()
        totals = torch.stack([counted.sum(1).double(), x.sum(1)])
        number, total = all_reduce_sum(totals, group)
        centre = total / number.clamp(min=1)
        # Around the mean: squares of scores far from 0 would cancel.
        x = torch.where(counted, x - centre[:, None], 0)
        squares = all_reduce_sum(x.square().sum(1), group)
        log_spread = (squares / number.clamp(min=1)).sqrt().clamp(*self.RANGE).log()
        return torch.where(number > 1, log_spread, torch.nan)

    def average(
        self, own: Tensor, counted: Tensor, default: float = 1.0, state_group=None
    ) -> Tensor:
        """Take in (L,) :meth:`log_spreads` of a batch; returns (1,) or (L,) float64 spreads > 0.

        ``counted`` are the (L,) bool lists that have a say. The ranks of ``state_group`` hold other
        lists. Where no batch was seen yet, it is the value of the batch itself, and ``default`` if
        that has none.
        """
        has_spread = ~own.isnan()
        own = torch.where(has_spread, own, math.log(default))
        counted = counted & has_spread
        mean = self.update(own[:, None], counted[:, None], state_group).double()
        if mean.numel() == 1:
            number = counted.sum()
            own = torch.where(counted, own, 0).sum() / number.clamp(min=1)
            own = torch.where(number > 0, own, math.log(default))
        return torch.where(self.num_updates > 0, mean, own).exp()

    def step(self, batch_mean: Tensor, usable: Tensor) -> None:
        mean, seen = self.before()
        most = math.log(self.LARGEST_STEP)
        average = mean + self.momentum * (batch_mean - mean).clamp(-most, most)
        self.store(torch.where(seen, average, batch_mean), usable)
