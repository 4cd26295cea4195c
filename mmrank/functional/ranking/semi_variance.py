"""Spread of scores on the wrong side of their mean."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from mmrank.autograd import once_differentiable
from mmrank.losses.pairs.surrogates import clamp_infinite

from .lists import ranking_function


class _UpperSemiVariance(Function):
    @staticmethod
    def forward(ctx, scores, mask, group, over):
        x = torch.where(mask, clamp_infinite(scores.double()), 0)
        sums = torch.stack([x.sum(1), mask.sum(1).double()])
        if group is not None:
            dist.all_reduce(sums, group=group)
        count = sums[1].clamp(min=1)
        mean = sums[0] / count
        above = _above(x, mean, mask)
        sums = torch.stack([above.square().sum(1), above.sum(1), (above > 0).sum(1).double()])
        if group is not None:
            dist.all_reduce(sums, group=group)
        squares, total, beyond = sums
        divisor = count if over == 'all' else beyond.clamp(min=1)
        ctx.save_for_backward(scores, mask, mean, total / count, divisor)
        return squares / divisor

    @staticmethod
    @once_differentiable('semi_variance')
    def backward(ctx, grad):
        scores, mask, mean, mean_above, divisor = ctx.saved_tensors
        above = _above(clamp_infinite(scores.double()), mean, mask)
        # The mean moves with every score: the second term.
        slope = (2 * grad / divisor)[:, None] * (above - mean_above[:, None])
        return torch.where(mask, slope, 0).to(scores.dtype), None, None, None


def _above(x: Tensor, mean: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, (x - mean[:, None]).clamp(min=0), 0)


#: What the sum of squares is divided by.
DIVISORS = ('all', 'beyond')


def upper_semi_variance(scores: Tensor, mask: Tensor, group=None, over: str = 'all') -> Tensor:
    """``1/n sum_{t_j > mean} (t_j - mean)^2`` of L lists.

    That of the scores below the mean is ``upper_semi_variance(-scores)``.
    Source: SOPRC (NeurIPS 2022), eq. 9.

    Args:
        scores: (L, N) float scores.
        mask: (L, N) bool, False for entries to ignore.
        group: Process group over which the scores are spread. Every rank gets the value of all of
            them and the gradient of its own.
        over: What n counts: ``all`` scores of the list (eq. 9), or those ``beyond`` the mean (the
            authors' code).

    Returns:
        (L,) float64 >= 0, 0 for an empty list; differentiable once. Infinite scores act as +-1e30;
        NaN gives NaN.

    Raises:
        ValueError: If the shapes do not fit, or ``over`` is unknown.
        TypeError: If the scores are not of a float dtype.
    """
    if over not in DIVISORS:
        raise ValueError(f'over={over!r} is unknown; use one of {DIVISORS}')
    if not scores.is_floating_point():
        raise TypeError(f'scores must be of a float dtype, got {scores.dtype}; call scores.float()')
    if scores.dim() != 2 or scores.shape != mask.shape:
        raise ValueError(
            'scores and mask must be (lists, scores) of one shape, got '
            f'{tuple(scores.shape)} and {tuple(mask.shape)}'
        )
    return _UpperSemiVariance.apply(scores, mask, group, over)


@ranking_function
def semi_variance(
    pos: Tensor,
    neg: Tensor,
    *,
    lam1: float,
    lam2: float,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    group=None,
) -> Tensor:
    """Semi-variance regulariser.

    ``lam1/n+ sum_{s_i < mean+} (s_i - mean+)^2
    + lam2/n- sum_{t_j > mean-} (t_j - mean-)^2``. Source: SOPRC (NeurIPS 2022), eq. 9.

    Args:
        pos: (P,) or padded (L, P) scores of the positives.
        neg: (N,) or (L, N) scores of the negatives.
        lam1: Weight of the positives, >= 0; 0 leaves them out.
        lam2: Weight of the negatives, >= 0; 0 leaves them out.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        group: Process group over which the negatives are spread; ``pos`` must then hold the
            positives of all ranks.

    Returns:
        Scalar, or (L,) float64 values, >= 0; 0 for a list without positives.

    Raises:
        ValueError: If a weight is negative or shapes do not fit.
        TypeError: If a score tensor is not of a float dtype.
    """
    _check_weights(lam1, lam2)
    if neg_mask is None:
        neg_mask = torch.ones_like(neg, dtype=torch.bool)
    total = pos.new_zeros(pos.size(0), dtype=torch.float64)
    if lam1 > 0:
        total = total + lam1 * upper_semi_variance(-pos, pos_mask)
    if lam2 > 0:
        total = total + lam2 * upper_semi_variance(neg, neg_mask, group)
    return torch.where(pos_mask.any(1), total, 0)


def batch_semi_variance(
    pos: Tensor,
    neg: Tensor,
    *,
    lam1: float,
    lam2: float,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    group=None,
) -> Tensor:
    """Semi-variance regulariser as the authors of SOPRC train it.

    One mean of the positives and one of the negatives of all lists together, and the mean square
    over the scores beyond it. Equation 9 says neither
    "per list" nor "per batch" and divides by all scores; with queries of 28 x 4 images this form is
    5 to 7 times as large as :func:`semi_variance`.

    Args:
        pos: (L, P) scores of the positives.
        neg: (L, N) scores of the negatives.
        lam1: Weight of the positives, >= 0; 0 leaves them out.
        lam2: Weight of the negatives, >= 0; 0 leaves them out.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        group: Process group over which the negatives are spread; ``pos`` must then hold the
            positives of all ranks.

    Returns:
        Float64 scalar >= 0. Lists without positives do not count.

    Raises:
        ValueError: If a weight is negative or shapes do not fit.
        TypeError: If a score tensor is not of a float dtype.
    """
    _check_weights(lam1, lam2)
    if pos_mask is None:
        pos_mask = torch.ones_like(pos, dtype=torch.bool)
    if neg_mask is None:
        neg_mask = torch.ones_like(neg, dtype=torch.bool)
    neg_mask = neg_mask & pos_mask.any(1, keepdim=True)
    total = pos.new_zeros(1, dtype=torch.float64)
    if lam1 > 0:
        total = total + lam1 * upper_semi_variance(
            -pos.reshape(1, -1), pos_mask.reshape(1, -1), over='beyond'
        )
    if lam2 > 0:
        total = total + lam2 * upper_semi_variance(
            neg.reshape(1, -1), neg_mask.reshape(1, -1), group, over='beyond'
        )
    return total[0]


def _check_weights(lam1: float, lam2: float) -> None:
    for name, lam in (('lam1', lam1), ('lam2', lam2)):
        if not lam >= 0:
            raise ValueError(f'{name} must be >= 0, got {lam!r}')
