"""Sums of the piecewise-linear step over all pairs, for the ranking losses.

AP-Loss, aLRP and Rank & Sort count how many scores lie above a positive with
the step ``H(x) = clamp(x / (2 delta) + 1/2, 0, 1)``. H is, up to a factor and
a shift, the slope of the one-sided Huber surrogate::

    H(t - s) = -delta * l'(s + delta - t),    tau = 2 delta

so the exact near-linear evaluation of that surrogate serves them as well.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from .pairwise_surrogate import pair_evaluator
from .surrogates import OneSidedHuber


def piecewise_linear_step(x: Tensor, delta: float) -> Tensor:
    """``H(x) = clamp(x / (2 delta) + 1/2, 0, 1)``.

    Source: AP-Loss (CVPR 2019), eq. 13; Rank & Sort (ICCV 2021), section 3.

    Args:
        x: Score differences, any shape.
        delta: Half width of the ramp in units of the scores, > 0.

    Returns:
        Values in [0, 1], same shape.

    Raises:
        ValueError: If ``delta`` is not > 0.
    """
    check_delta(delta)
    return (x / (2 * delta) + 0.5).clamp(0, 1)


def check_delta(delta: float) -> None:
    """Refuse a ramp without width.

    Raises:
        ValueError: If ``delta`` is not > 0.
    """
    if not delta > 0:
        raise ValueError(
            f'delta must be > 0, got {delta!r}; a small delta approaches the '
            'hard step'
        )


class StepSums:
    """Counts above each positive of L lists, and their transpose.

    Args:
        delta: Half width of the ramp, > 0.
        method: ``'auto'``, ``'intervals'`` or ``'pairs'``; see
            :func:`pairwise_surrogate_sum`.

    Raises:
        ValueError: If ``delta`` is not > 0 or ``method`` is unknown.
    """

    def __init__(self, delta: float, method: str = 'auto') -> None:
        check_delta(delta)
        self.delta, self.method = delta, method
        self._evaluator = None

    @torch.no_grad()
    def count(
        self,
        pos: Tensor,
        pos_mask: Tensor,
        scores: Tensor,
        mask: Tensor | None,
        group=None,
    ) -> tuple[Tensor, tuple]:
        """``sum_j H(t_j - s_i)`` for every positive.

        Args:
            pos: (L, P) scores s, padded.
            pos_mask: (L, P) bool, False for padding.
            scores: (L, N) scores t.
            mask: (L, N) bool, False for what does not count, or None.
            group: Process group over which ``scores`` are spread.

        Returns:
            (L, P) float64 counts >= 0, 0 at padding, and tensors to hand to
            :meth:`spread`.
        """
        self._evaluator = pair_evaluator(
            OneSidedHuber(2 * self.delta),
            pos.numel() * scores.size(1),
            self.method,
        )
        shifted = pos.double() + self.delta
        _, slope, extra = self._evaluator.sums(shifted, pos_mask, scores, mask)
        count = -self.delta * slope
        if group is not None:
            dist.all_reduce(count, group=group)
        # Rounding may leave -1e-17 where the count is 0.
        return torch.where(pos_mask, count.clamp(min=0), 0), extra

    def spread(self, weight: Tensor, scores: Tensor, *extra) -> Tensor:
        """``sum_i w_i H(t_j - s_i)`` for every score of the last count.

        Args:
            weight: (L, P) float64 weights w, 0 at padding.
            scores: (L, N) the scores that were counted.
            *extra: What :meth:`count` returned.

        Returns:
            (L, N) sums in the dtype of ``scores``, 0 at what did not count.
        """
        return self._evaluator.gradient_of_negatives(
            self.delta * weight, scores, *extra
        )
