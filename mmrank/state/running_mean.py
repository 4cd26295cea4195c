"""Moving averages of what each batch measures, one in all or one per class."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import can_sync
from mmrank.checks import check_count, check_within
from mmrank.errors import UserError

from .base import SavedState, check_rows

MEAN_MODES = ('plain', 'exact', 'off')


def within_reach(
    values: Tensor,
    mean: Tensor,
    seen: Tensor,
    score_range: tuple[float | Tensor, float | Tensor],
    widths: float = 1.0,
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


class OutlierWarning:
    """Warns once that values were clipped; on a GPU with one of the next batches, without waiting.

    ``what`` was clipped is for the message.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.given = False
        self._found = self._flag = self._arrived = None

    def __reduce__(self):
        # A copy of a module warns for itself; events cannot be copied.
        return OutlierWarning, (self.what,)

    def note(self, clipped: Tensor) -> None:
        """Take in which values of a batch were clipped, a bool tensor."""
        if self.given:
            return
        if can_sync(clipped):
            if clipped.any():
                self._warn()
        elif clipped.device.type == 'cuda':
            self._note_later(clipped.any())

    def _note_later(self, found: Tensor) -> None:
        if torch.cuda.is_current_stream_capturing():
            return
        self._found = found if self._found is None else self._found | found
        if self._arrived is not None and not self._arrived.query():
            return
        if self._flag is None:
            self._flag = torch.zeros((), dtype=torch.bool, pin_memory=True)
        elif self._flag:
            self._warn()
            return
        self._flag.copy_(self._found, non_blocking=True)
        self._arrived = torch.cuda.Event()
        self._arrived.record()

    def _warn(self) -> None:
        self.given = True
        self._found = self._flag = self._arrived = None
        warnings.warn(
            f'{self.what} of a batch lies far outside of what score_range explains; it was '
            'clipped before it was averaged. Look for a broken sample or a diverging model, or '
            'declare the range that the scores have. This is said once',
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
        self.register_buffer('mean', torch.zeros(size))
        self.register_buffer('num_updates', torch.zeros(size, dtype=torch.long))

    def update(
        self, values: Tensor, mask: Tensor, group=None, rows: Tensor | None = None
    ) -> Tensor:
        """Take in (L, P) values of a batch and return (1,) or (L,) float32 means for its lists.

        Nothing changes where the state does not move, see :class:`TrainingState`. The ranks of
        ``group`` hold different values. ``rows`` are (L,) integers, the mean that each list belongs
        to, such as the class of a query; lists of one row are pooled. None: with ``size`` 1 all
        lists are pooled, otherwise list i is row i. Ignored with ``size`` 1.
        """
        size = self.mean.numel()
        if size == 1:
            rows = None
        if rows is not None:
            check_rows('list_classes', rows, values.size(0), size)
        elif size not in (1, values.size(0)):
            raise ValueError(
                f'the state holds {size} means but the scores have {values.size(0)} lists; set '
                f'num_classes={values.size(0)}, or pass the class of each list'
            )
        totals = self._totals(values.detach(), mask, rows)
        if group is not None:
            dist.all_reduce(totals, group=group)
        batch_mean = totals[0] / totals[1].clamp(min=1)
        usable = (totals[1] > 0) & batch_mean.float().isfinite()
        return self._of_lists(self._used(batch_mean, usable), rows)

    def _of_lists(self, values: Tensor, rows: Tensor | None) -> Tensor:
        """Values of the means, (size,), for the lists with these rows."""
        if rows is None or self.mean.numel() == 1:
            return values
        return values[rows.long()]

    def _used(self, batch_mean: Tensor, usable: Tensor) -> Tensor:
        """Take a step where one is due; (size,) means to use."""
        if self.moves:
            self._step(batch_mean, usable)
        return self.mean.clone()

    def _step(self, batch_mean: Tensor, usable: Tensor) -> None:
        mean = self.mean.double()
        # An infinite mean of an old checkpoint starts afresh.
        seen = (self.num_updates > 0) & mean.isfinite()
        bounded = self._bounded(batch_mean, mean, seen, usable)
        target = torch.where(seen, self._target(mean, bounded), bounded)
        usable = usable & target.float().isfinite()
        self.mean.copy_(torch.where(usable, target, mean))
        self.num_updates += usable

    def _bounded(self, batch_mean: Tensor, mean: Tensor, seen: Tensor, usable: Tensor) -> Tensor:
        """(size,) means of the batch as they are averaged, float64."""
        return batch_mean

    def _target(self, mean: Tensor, batch_mean: Tensor) -> Tensor:
        """(size,) new means of the rows that were set before, float64."""
        return (1 - self.momentum) * mean + self.momentum * batch_mean

    def _totals(self, values: Tensor, mask: Tensor, rows: Tensor | None) -> Tensor:
        """(2, size) sums and counts of the values of each mean."""
        sums = torch.where(mask, values.double(), 0).sum(1)
        totals = torch.stack([sums, mask.sum(1).double()])
        if self.mean.numel() == 1:
            return totals.sum(1, keepdim=True)
        if rows is None:
            return totals
        # Lists of one row all write the same pooled value, so the order of
        # the writes cannot show, as the order of an atomic addition would.
        same = rows[:, None] == rows
        finite = totals.isfinite().all(0)
        pooled = torch.where(finite, totals, 0) @ same.double()
        # A class with a broken score is left out, not all classes.
        broken = (same & ~finite).any(1)
        result = totals.new_zeros(2, self.mean.numel())
        result[:, rows.long()] = torch.where(broken, torch.nan, pooled)
        return result


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
        self._batch_range: tuple[float | Tensor, float | Tensor] | None = score_range
        self._warning = OutlierWarning('the mean positive score')
        self._probing = False
        self._previous: Tensor | None = None

    def update(self, *batch, score_range: tuple | None = None, **options) -> Tensor:
        """See :meth:`RunningMean.update`; ``score_range`` is the batch's, None the state's."""
        self._batch_range = self.score_range if score_range is None else score_range
        return super().update(*batch, **options)

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Within, :meth:`update` only notes ``m_k(theta_{k-1})``."""
        self._probing = True
        self._previous = None
        try:
            yield
        finally:
            self._probing = False

    def _used(self, batch_mean: Tensor, usable: Tensor) -> Tensor:
        if self._probing:
            self._previous = batch_mean
            return self.mean.clone()
        if self.value is not None:
            return self.mean.clone()
        return super()._used(batch_mean, usable)

    def _load_from_state_dict(self, *args) -> None:
        super()._load_from_state_dict(*args)
        if self.value is not None:
            # A checkpoint may hold the mean of another mode.
            self.mean = torch.full_like(self.mean, self.value)

    def _bounded(self, batch_mean: Tensor, mean: Tensor, seen: Tensor, usable: Tensor) -> Tensor:
        if self.mode == 'off' or self._batch_range is None:
            return batch_mean
        bounded = within_reach(batch_mean, mean, seen, self._batch_range)
        self._warning.note((bounded != batch_mean) & usable)
        return bounded

    def _target(self, mean: Tensor, batch_mean: Tensor) -> Tensor:
        if self.mode == 'off':
            return batch_mean
        target = super()._target(mean, batch_mean)
        if self.mode == 'exact':
            target = target + (1 - self.momentum) * self._correction(mean, batch_mean)
        return target

    def _correction(self, mean: Tensor, batch_mean: Tensor) -> Tensor:
        previous = self._previous
        self._previous = None
        if previous is None:
            raise RuntimeError(
                "mode='exact' requires the batch's mean positive score under the previous weights: "
                "add custom_hooks=[dict(type='mmrank.PreviousWeightsHook')] or use mode='plain'"
            )
        step = batch_mean - previous
        usable = step.isfinite()
        if self._batch_range is not None:
            low, high = self._batch_range
            usable &= step.abs() <= high - low + mean.abs()
        return torch.where(usable, step, 0)


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
        self.largest = largest

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
        seen = self._of_lists(self.num_updates > 0, rows)
        mean = torch.where(seen, mean.double(), risk)
        return torch.minimum(ratio, self.TARGET / mean)

    def _bounded(self, batch_mean: Tensor, mean: Tensor, seen: Tensor, usable: Tensor) -> Tensor:
        if self.largest is None:
            return batch_mean
        first = batch_mean.clamp(max=self.largest)
        return torch.where(seen, batch_mean, first)

    def _target(self, mean: Tensor, batch_mean: Tensor) -> Tensor:
        # A mean of 0 (all ranked right so far) must be able to rise again.
        largest = torch.where(mean > 0, self.LARGEST_STEP * mean, batch_mean)
        return super()._target(mean, torch.minimum(batch_mean, largest))
