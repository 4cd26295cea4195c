"""Losses whose gradient is set by an update rule, not by differentiation.

AP-Loss, aLRP and Rank & Sort count how many scores lie above a positive with the step ``H(x) =
clamp(x / (2 delta) + 1/2, 0, 1)``. H is, up to a factor and a shift, the slope of the one-sided
Huber surrogate::

    H(t - s) = -delta * l'(s + delta - t),    tau = 2 delta

so the exact near-linear evaluation of that surrogate serves them as well.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from mmrank.autograd import once_differentiable
from mmrank.losses.pairs.pair_sums import has_few_positives, pair_evaluator
from mmrank.losses.pairs.surrogates import OneSidedHuber


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
            f'delta must be > 0, got {delta!r}; a small delta approaches the hard step'
        )


class StepSums:
    """Counts above each positive of L lists, and their transpose.

    Args:
        delta: Half width of the ramp, > 0.
        method: See :func:`pairwise_surrogate_sum`.

    Raises:
        ValueError: If ``delta`` is not > 0 or ``method`` is unknown.
    """

    def __init__(self, delta: float, method: str = 'auto') -> None:
        check_delta(delta)
        self.delta, self.method = delta, method
        self._evaluator = None

    @torch.no_grad()
    def count(
        self, pos: Tensor, pos_mask: Tensor, scores: Tensor, mask: Tensor | None, group=None
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
            has_few_positives(pos_mask),
        )
        shifted = pos.double() + self.delta
        _, slope, extra = self._evaluator.sums(shifted, pos_mask, scores, mask, values=False)
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
        return self._evaluator.gradient_of_negatives(self.delta * weight, scores, *extra)


class RankCounts(NamedTuple):
    """How many scores lie above each positive, by the step H.

    Attributes:
        steps: What counted, with the tensors it needs to spread an error.
        extra: Those tensors.
        own_steps: The same for the positives among themselves.
        own_extra: Its tensors.
        false_positives: (L, P) float64 ``N_FP(i) = sum_j H(t_j - s_i)``.
        positives: (L, P) float64 ``sum_{k != i} H(s_k - s_i)``.
        num_pos: (L,) float64 number of positives, at least 1.
        has_positive: (L,) bool.
    """

    steps: StepSums
    extra: tuple
    own_steps: StepSums
    own_extra: tuple
    false_positives: Tensor
    positives: Tensor
    num_pos: Tensor
    has_positive: Tensor


@torch.no_grad()
def rank_counts(
    pos: Tensor,
    neg: Tensor,
    delta: float,
    pos_mask: Tensor,
    neg_mask: Tensor | None,
    method: str = 'auto',
    group=None,
) -> RankCounts:
    """Count above each positive of L lists.

    Args:
        pos: (L, P) scores of the positives, padded.
        neg: (L, N) scores of the negatives.
        delta: Half width of the step, > 0.
        pos_mask: (L, P) bool, False for padding.
        neg_mask: (L, N) bool, False for what is no negative, or None.
        method: See :func:`pairwise_surrogate_sum`.
        group: Process group over which the negatives are spread.

    Returns:
        The counts.

    Raises:
        ValueError: If ``delta`` is not > 0 or ``method`` is unknown.
    """
    steps, own = StepSums(delta, method), StepSums(delta, method)
    above, extra = steps.count(pos, pos_mask, neg, neg_mask, group)
    same = pos.double()
    among, own_extra = own.count(same, pos_mask, same, pos_mask)
    # A positive meets itself at H(0) = 1/2.
    among = torch.where(pos_mask, (among - 0.5).clamp(min=0), 0)
    num_pos = pos_mask.sum(1)
    return RankCounts(
        steps, extra, own, own_extra, above, among, num_pos.clamp(min=1).double(), num_pos > 0
    )


class _ErrorDriven(Function):
    @staticmethod
    def forward(ctx, pos, neg, value, pos_grad, spread, steps, *extra):
        ctx.steps = steps
        ctx.save_for_backward(pos, neg, pos_grad, spread, *extra)
        return value.clone()

    @staticmethod
    @once_differentiable('An error-driven loss (AP-Loss, aLRP, Rank & Sort)')
    def backward(ctx, grad):
        pos, neg, pos_grad, spread, *extra = ctx.saved_tensors
        grad = grad.unsqueeze(1)
        grad_pos = grad_neg = None
        if ctx.needs_input_grad[0]:
            grad_pos = (grad * pos_grad).to(pos.dtype)
        if ctx.needs_input_grad[1] and ctx.steps is not None:
            grad_neg = ctx.steps.spread(grad * spread, neg, *extra)
        return (grad_pos, grad_neg, *[None] * (4 + len(extra)))


def error_driven_loss(
    pos: Tensor, neg: Tensor, value: Tensor, error: Tensor, counts: RankCounts, eps: float = 0.0
) -> Tensor:
    """A loss whose gradient is the identity update of its errors.

    Positive i receives ``-error_i / n+`` and negative j
    ``sum_i error_i H(t_j - s_i) / (N_FP(i) n+)``: what the positives are pulled up by is what the
    negatives above them are pushed down by. A positive without false positives has no error to pass
    on. Source: Rank & Sort (ICCV 2021), eqs. 3 to 6; AP-Loss (CVPR 2019), eqs. 9 to 12.

    Args:
        pos: (L, P) scores of the positives.
        neg: (L, N) scores of the negatives.
        value: (L,) float64 value of the loss.
        error: (L, P) float64 errors, 0 at padding.
        counts: From :func:`rank_counts` on the same scores.
        eps: Number of false positives up to which there is no update. Where errors do not vanish
            with their number, it keeps rounding from being divided by rounding.

    Returns:
        (L,) ``value``, once differentiable in ``pos`` and ``neg``; the incoming gradient scales all
        of it.
    """
    found = counts.false_positives > eps
    error = torch.where(found, error, 0) / counts.num_pos.unsqueeze(1)
    spread = torch.where(found, error / counts.false_positives, 0)
    return _ErrorDriven.apply(pos, neg, value, -error, spread, counts.steps, *counts.extra)


def fixed_gradient_loss(pos: Tensor, value: Tensor, grad: Tensor) -> Tensor:
    """A loss of the positives alone with a given gradient.

    Args:
        pos: (L, P) scores of the positives.
        value: (L,) float64 value of the loss.
        grad: (L, P) float64 gradient by ``pos``.

    Returns:
        (L,) ``value``, once differentiable in ``pos``.
    """
    return _ErrorDriven.apply(pos, pos.detach(), value, grad, grad, None)
