"""Running estimate of the mean positive score."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .recomputation import inside_backward
from .row_index import check_rows

MODES = ('plain', 'exact', 'off')


class MeanPositiveScore(nn.Module):
    """EMA of the mean positive score with variance reduction.

    ``mu_k = (1-lam) mu_{k-1} + lam m_k(theta_k)
    + (1-lam) (m_k(theta_k) - m_k(theta_{k-1}))``, where ``m_k(theta)`` is the
    mean positive score of batch k under the weights ``theta``. Source: stable
    AP (2025), eq. 6.

    Modes:
        ``exact``: the formula as it stands. ``m_k(theta_{k-1})`` comes from a
            forward inside :meth:`probing`, which
            :class:`mmrank.engine.hooks.PreviousWeightsHook` runs.
        ``plain``: without the last term; lags behind a drifting score.
        ``off``: mu is the mean of the batch at hand (the paper's ablation).

    The first batch with a positive sets the estimate; a batch without one, or
    whose mean is not finite, leaves it. The state is the same on all ranks
    and for any world size.

    Args:
        size: Number of estimates: 1 for a global one, C for one per class.
        momentum: lam in ``(0, 1]``, the weight of the new batch.
        mode: One of ``exact``, ``plain``, ``off``.

    Attributes:
        mean: (size,) float32 buffer, in units of the scores.
        num_updates: (size,) int64 buffer, batches that each estimate saw.

    Raises:
        ValueError: On a parameter out of range.
    """

    mean: Tensor
    num_updates: Tensor

    def __init__(
        self, size: int = 1, momentum: float = 0.01, mode: str = 'plain'
    ) -> None:
        super().__init__()
        if not (isinstance(size, int) and size >= 1):
            raise ValueError(f'size must be an int >= 1, got {size!r}')
        if not 0 < momentum <= 1:
            raise ValueError(f'momentum must be in (0, 1], got {momentum!r}')
        if mode not in MODES:
            raise ValueError(f'mode={mode!r} is unknown; use one of {MODES}')
        self.momentum, self.mode = momentum, mode
        self.register_buffer('mean', torch.zeros(size))
        self.register_buffer(
            'num_updates', torch.zeros(size, dtype=torch.long)
        )
        self._probing = False
        self._previous: Tensor | None = None

    def _apply(self, fn, recurse=True):
        # model.half() must not round the state: steps of lam would vanish.
        mean = self.mean
        super()._apply(fn, recurse)
        if self.mean.dtype != mean.dtype:
            self.mean = mean.to(self.mean.device)
        return self

    def extra_repr(self) -> str:
        return (
            f'size={self.mean.numel()}, momentum={self.momentum}, '
            f'mode={self.mode!r}'
        )

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Within, :meth:`update` only notes ``m_k(theta_{k-1})``."""
        self._probing, self._previous = True, None
        try:
            yield
        finally:
            self._probing = False

    @torch.no_grad()
    def update(
        self,
        pos: Tensor,
        mask: Tensor,
        group=None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Take in the positives of a batch and return mu.

        Args:
            pos: (L, P) scores of the positives of L lists.
            mask: (L, P) bool, False for padding.
            group: Process group whose ranks hold different positives; None if
                ``pos`` is the whole batch.
            rows: (L,) integers, the estimate that each list belongs to, such
                as the class of a query; lists of one row are pooled. None:
                with ``size`` 1 all lists are pooled, otherwise list i is row
                i. Not looked at with ``size`` 1.

        Returns:
            (1,) or (L,) float32 estimates to use with the lists.

        Raises:
            ValueError: If the lists do not fit the rows; on a GPU an index
                out of range is a device-side assertion.
            TypeError: If ``rows`` are not integers.
            RuntimeError: In mode ``exact``, if nobody noted the batch's mean
                under the previous weights.
        """
        size = self.mean.numel()
        if size == 1:
            rows = None
        if rows is not None:
            check_rows('list_classes', rows, pos.size(0), size)
        elif size not in (1, pos.size(0)):
            raise ValueError(
                f'the state holds {size} means but the scores have '
                f'{pos.size(0)} lists; set num_classes={pos.size(0)}, or pass '
                'the class of each list'
            )
        mean = self._step(self._totals(pos, mask, rows), group)
        return mean if rows is None else mean[rows.long()]

    def _totals(
        self, pos: Tensor, mask: Tensor, rows: Tensor | None
    ) -> Tensor:
        """(2, size) sums and counts of the positives of each estimate."""
        sums = torch.where(mask, pos.double(), 0).sum(1)
        totals = torch.stack([sums, mask.sum(1).double()])
        if self.mean.numel() == 1:
            return totals.sum(1, keepdim=True)
        if rows is None:
            return totals
        # Lists of one row all write the same pooled value, so the order of
        # the writes cannot show, as that of an atomic addition would.
        same = rows[:, None] == rows
        finite = totals.isfinite().all(0)
        pooled = torch.where(finite, totals, 0) @ same.double()
        # A class with a broken score is left out, not all classes.
        broken = (same & ~finite).any(1)
        result = totals.new_zeros(2, self.mean.numel())
        result[:, rows.long()] = torch.where(broken, torch.nan, pooled)
        return result

    def _step(self, totals: Tensor, group) -> Tensor:
        """Take in the (2, size) sums and counts; (size,) estimates."""
        if group is not None:
            dist.all_reduce(totals, group=group)
        batch_mean = totals[0] / totals[1].clamp(min=1)
        usable = (totals[1] > 0) & batch_mean.isfinite()
        if self._probing:
            self._previous = batch_mean
            return self.mean.clone()
        if not self.training or inside_backward():
            return self.mean.clone()

        mean = self.mean.double()
        lam = 1.0 if self.mode == 'off' else self.momentum
        target = (1 - lam) * mean + lam * batch_mean
        if self.mode == 'exact':
            target = target + (1 - lam) * self._correction(batch_mean)
        target = torch.where(self.num_updates > 0, target, batch_mean)
        self.mean.copy_(torch.where(usable, target, mean))
        self.num_updates += usable
        return self.mean.clone()

    def _correction(self, batch_mean: Tensor) -> Tensor:
        previous, self._previous = self._previous, None
        if previous is None:
            raise RuntimeError(
                "mode='exact' needs the batch's mean positive score under the "
                'previous weights: add custom_hooks=[dict('
                "type='mmrank.PreviousWeightsHook')] or use mode='plain'"
            )
        step = batch_mean - previous
        return torch.where(step.isfinite(), step, 0)
