"""Running estimate of the mean positive score."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from .running_mean import RunningMean

MODES = ('plain', 'exact', 'off')


class MeanPositiveScore(RunningMean):
    """EMA of the mean positive score with variance reduction.

    ``mu_k = (1-lam) mu_{k-1} + lam m_k(theta_k)
    + (1-lam) (m_k(theta_k) - m_k(theta_{k-1}))``, where ``m_k(theta)`` is the
    mean positive score of batch k under the weights ``theta``. Source: stable
    AP (2025), eq. 6.

    Modes:
        ``exact``: the formula unchanged. ``m_k(theta_{k-1})`` comes from a
            forward inside :meth:`probing`, which
            :class:`mmrank.engine.hooks.PreviousWeightsHook` runs.
        ``plain``: without the last term; lags behind a drifting score.
        ``off``: mu is the mean of the batch at hand (the paper's ablation).

    :class:`RunningMean` says what :meth:`update` does with batches that are
    empty or not finite, and with classes.

    Args:
        size: Number of estimates: 1 for a global one, C for one per class.
        momentum: lam in ``(0, 1]``, the weight of the new batch.
        mode: One of ``exact``, ``plain``, ``off``.

    Attributes:
        mean: (size,) float32 buffer, in units of the scores.
        num_updates: (size,) int64 buffer, batches that each estimate saw.

    Raises:
        ValueError: On a parameter out of range.
        RuntimeError: By :meth:`update` in mode ``exact``, if the batch's mean
            under the previous weights was not measured.
    """

    def __init__(
        self, size: int = 1, momentum: float = 0.01, mode: str = 'plain'
    ) -> None:
        super().__init__(size, momentum)
        if mode not in MODES:
            raise ValueError(f'mode={mode!r} is unknown; use one of {MODES}')
        self.mode = mode
        self._probing = False
        self._previous: Tensor | None = None

    def extra_repr(self) -> str:
        return f'{super().extra_repr()}, mode={self.mode!r}'

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Within, :meth:`update` only notes ``m_k(theta_{k-1})``."""
        self._probing, self._previous = True, None
        try:
            yield
        finally:
            self._probing = False

    def _used(self, batch_mean: Tensor, usable: Tensor) -> Tensor:
        if self._probing:
            self._previous = batch_mean
            return self.mean.clone()
        return super()._used(batch_mean, usable)

    def _target(self, mean: Tensor, batch_mean: Tensor) -> Tensor:
        if self.mode == 'off':
            return batch_mean
        target = super()._target(mean, batch_mean)
        if self.mode == 'exact':
            target = target + (1 - self.momentum) * self._correction(
                batch_mean
            )
        return target

    def _correction(self, batch_mean: Tensor) -> Tensor:
        previous, self._previous = self._previous, None
        if previous is None:
            raise RuntimeError(
                "mode='exact' requires the batch's mean positive score under "
                'the previous weights: add '
                "custom_hooks=[dict(type='mmrank.PreviousWeightsHook')] or "
                "use mode='plain'"
            )
        step = batch_mean - previous
        return torch.where(step.isfinite(), step, 0)
