"""Sums of a surrogate over all pairs of a positive and a negative of a list.

The one-sided Huber is summed exactly in near-linear time and linear memory (``interval_sums``),
other surrogates and small problems by the matrix of pairs, in blocks of bounded size.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import Function, can_sync, is_compiling, once_differentiable
from mmrank.tensors import check_floats

from .compiled_sums import CompiledSums
from .interval_sums import IntervalSums
from .pair_matrix import PairMatrix
from .surrogates import Surrogate

#: Pairs up to which the matrix is faster than the intervals.
DENSE_PAIRS = 2**18
# Positives of a list up to which it is, on a CPU, for any number of pairs: a pair costs 4 ns there,
# a score of the intervals 35 ns.
_FEW_POSITIVES = 8


class _PairSum(Function):
    @staticmethod
    def forward(ctx, pos, neg, pos_mask, neg_mask, evaluator, group):
        slopes = is_compiling() or any(ctx.needs_input_grad[:2])
        total, slope, extra = evaluator.sums(pos, pos_mask, neg, neg_mask, slopes=slopes)
        if group is not None:
            # Sums over negatives add up over the ranks that hold them.
            both = torch.stack([total, slope])
            dist.all_reduce(both, group=group)
            total, slope = both
        ctx.evaluator = evaluator
        ctx.save_for_backward(pos, neg, pos_mask, slope, *extra)
        return torch.where(pos_mask, total, 0)

    @staticmethod
    @once_differentiable('pairwise_surrogate_sum')
    def backward(ctx, grad):
        pos, neg, pos_mask, slope, *extra = ctx.saved_tensors
        grad = torch.where(pos_mask, grad, 0)
        grad_pos = grad_neg = None
        if ctx.needs_input_grad[0]:
            grad_pos = torch.where(pos_mask, grad * slope, 0).to(pos.dtype)
        if ctx.needs_input_grad[1]:
            grad_neg = ctx.evaluator.gradient_of_negatives(grad, neg, *extra)
        return grad_pos, grad_neg, None, None, None, None


def pair_evaluator(surrogate: Surrogate, pos_mask: Tensor, width: int, method: str = 'auto'):
    """A fresh :class:`PairMatrix`, or ``IntervalSums`` where that is faster for N = ``width``.

    While a graph is compiled it is one that the compiler does not look into.
    """
    if method not in ('auto', 'intervals', 'pairs'):
        raise ValueError(f"method={method!r} is unknown; use 'auto', 'intervals' or 'pairs'")
    if method == 'intervals' and not surrogate.has_intervals:
        raise ValueError(
            f'method={method!r} needs the one-sided Huber surrogate, got {type(surrogate).__name__}'
        )
    if is_compiling():
        return CompiledSums(surrogate)
    pairs = pos_mask.numel() * width
    if not surrogate.has_intervals or method == 'pairs' or pairs == 0:
        return PairMatrix(surrogate)
    if method == 'auto':
        few = pos_mask.size(1) <= _FEW_POSITIVES
        # On a device it is not measured, and the host would wait for the count.
        if can_sync(pos_mask) and not few:
            few = int(pos_mask.sum()) <= _FEW_POSITIVES * len(pos_mask)
        if pairs <= DENSE_PAIRS or (few and can_sync(pos_mask)):
            return PairMatrix(surrogate)
    return IntervalSums(surrogate.tau)


def pairwise_surrogate_sum(
    pos: Tensor,
    neg: Tensor,
    surrogate: Surrogate,
    *,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    method: str = 'auto',
    group=None,
) -> Tensor:
    """``sum_j l(s_i - t_j)`` for every positive of L lists at once.

    Args:
        pos: (L, P) float scores of the positives, padded.
        neg: (L, N) float scores, any strides.
        surrogate: The pair surrogate l.
        pos_mask: (L, P) bool, False for padding. None: no padding.
        neg_mask: (L, N) bool, True at the negatives. None: all scores are negatives.
        method: ``'intervals'`` (one-sided Huber only: O((P + N) log P) time, O(N) memory),
            ``'pairs'`` (the matrix of pairs in blocks) or ``'auto'``: the faster of both.
        group: Process group over which the negatives are spread: every rank passes the same ``pos``
            and its own ``neg``, and receives the sums over all and the gradient of its own.

    Returns:
        (L, P) float64 sums, 0 at padding; differentiable once, in ``pos`` and ``neg``. Infinite
        scores act as +-1e30; NaN gives NaN.

    Raises:
        ValueError, TypeError: On shapes, a method or dtypes that do not fit.
    """
    check_floats(pos=pos, neg=neg)
    for name, scores, mask in (('pos', pos, pos_mask), ('neg', neg, neg_mask)):
        if mask is not None and mask.shape != scores.shape:
            shape = tuple(scores.shape)
            raise ValueError(f'{name}_mask must have shape {shape}, got {tuple(mask.shape)}')
    if pos.dim() != 2 or neg.dim() != 2 or pos.size(0) != neg.size(0):
        raise ValueError(
            'pos and neg must be (lists, scores) with as many lists, '
            f'got shapes {tuple(pos.shape)} and {tuple(neg.shape)}'
        )
    if pos_mask is None:
        pos_mask = torch.ones_like(pos, dtype=torch.bool)
    if neg is pos:
        # torch.compile (2.12) gives a wrong gradient to a tensor that is an argument of a Function
        # twice.
        neg = pos.view_as(pos)
    if neg_mask is pos_mask:
        neg_mask = pos_mask.view_as(pos_mask)  # nor does it trace that
    evaluator = pair_evaluator(surrogate, pos_mask, neg.size(1), method)
    return _PairSum.apply(pos, neg, pos_mask, neg_mask, evaluator, group)
