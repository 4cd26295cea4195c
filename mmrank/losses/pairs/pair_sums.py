"""Sum and mean of a pair surrogate over all positive-negative pairs.

For the one-sided Huber surrogate the result is exact in near-linear time and linear memory, forward
and backward (derivation in ``tables``). Other surrogates, and problems too small to gain,
go through the pair matrix in blocks of bounded size.
"""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from mmrank.autograd import is_compiling, on_host, once_differentiable

from .interval_sums import IntervalSums
from .pair_matrix import PairMatrix
from .surrogates import OneSidedHuber, Surrogate

# Pairs of one block of the pair matrix, each a float64: 8 MiB a temporary.
_PAIRS_PER_BLOCK = 2**20
# Pairs up to which the pair matrix is the faster of the two paths.
DENSE_PAIRS = 2**18
# Positives of a list up to which it is, on a CPU, for any number of pairs: a pair costs 4 ns there,
# a score of the intervals 35 ns.
_FEW_POSITIVES = 8
_METHODS = ('auto', 'intervals', 'pairs')


class _PairwiseSum(Function):
    @staticmethod
    def forward(ctx, pos, neg, pos_mask, neg_mask, method, group):
        slopes = is_compiling() or any(ctx.needs_input_grad[:2])
        total, slope, extra = method.sums(pos, pos_mask, neg, neg_mask, slopes=slopes)
        if group is not None:
            # Sums over negatives add up over the ranks that hold them.
            both = torch.stack([total, slope])
            dist.all_reduce(both, group=group)
            total, slope = both
        ctx.method = method
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
            grad_neg = ctx.method.gradient_of_negatives(grad, neg, *extra)
        return grad_pos, grad_neg, None, None, None, None


def has_few_positives(pos_mask: Tensor) -> bool:
    """Whether the pair matrix is the faster path, however many negatives.

    Args:
        pos_mask: (L, P) bool, False for padding.
    """
    if not on_host(pos_mask):
        # Not measured there, and the host would wait for the count.
        return False
    lists, width = pos_mask.shape
    if width <= _FEW_POSITIVES:
        return True
    return int(pos_mask.sum()) <= _FEW_POSITIVES * lists


def pair_evaluator(
    surrogate: Surrogate, pairs: int, method: str = 'auto', few: bool = False
) -> PairMatrix | IntervalSums:
    """What evaluates the surrogate over that many pairs.

    Args:
        surrogate: The pair surrogate l.
        pairs: Positives times negatives, padding included.
        method: See :func:`pairwise_surrogate_sum`.
        few: Result of :func:`has_few_positives`.

    Returns:
        A fresh evaluator with ``sums`` and ``gradient_of_negatives``.

    Raises:
        ValueError: If ``method`` is unknown or does not fit the surrogate.
    """
    if method not in _METHODS:
        raise ValueError(f'method={method!r} is unknown; use one of {_METHODS}')
    is_huber = isinstance(surrogate, OneSidedHuber)
    if method == 'intervals' and not is_huber:
        raise ValueError(
            f'method={method!r} needs the one-sided Huber surrogate, got {type(surrogate).__name__}'
        )
    dense = (
        not is_huber
        or method == 'pairs'
        or pairs == 0
        or (method == 'auto' and (few or pairs <= DENSE_PAIRS))
    )
    if dense:
        return PairMatrix(surrogate, _PAIRS_PER_BLOCK)
    return IntervalSums(surrogate.tau)


def check_lists(pos: Tensor, neg: Tensor, or_one: bool = False) -> None:
    """Refuse scores that are no lists of positives and negatives.

    Args:
        pos: What should be (L, P) floats.
        neg: What should be (L, N) floats.
        or_one: Whether one list, (P,) and (N,), is allowed too.

    Raises:
        ValueError: If the shapes do not fit.
        TypeError: If one is not of a float dtype.
    """
    for name, scores in (('pos', pos), ('neg', neg)):
        if not scores.is_floating_point():
            raise TypeError(
                f'{name} must be of a float dtype, got {scores.dtype}; call {name}.float()'
            )
    if or_one and pos.dim() == neg.dim() == 1:
        return
    if pos.dim() != 2 or neg.dim() != 2 or pos.size(0) != neg.size(0):
        one = '1-D, or ' if or_one else ''
        raise ValueError(
            f'pos and neg must be {one}(lists, scores) with as many lists, '
            f'got shapes {tuple(pos.shape)} and {tuple(neg.shape)}'
        )


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
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative of its list.
            None: all are.
        method: ``'intervals'`` (one-sided Huber only: O((P + N) log P) time, O(N) memory),
            ``'pairs'`` (the pair matrix in blocks, any surrogate) or ``'auto'``: the pair matrix
            where it is small, else ``'intervals'``.
        group: Process group over which the negatives are spread. Every rank passes the same ``pos``
            and its own ``neg`` and receives the sums over all of them; the gradient is that of its
            own ``neg``.

    Returns:
        (L, P) float64 sums, 0 at padding; differentiable once, in ``pos`` and ``neg``. Infinite
        scores act as +-1e30; NaN gives NaN.

    Raises:
        ValueError: On shapes that do not fit, an unknown method or one that cannot run on these
            scores.
        TypeError: If a score tensor is not of a float dtype.
    """
    check_lists(pos, neg)
    for name, mask, of in (('pos_mask', pos_mask, pos), ('neg_mask', neg_mask, neg)):
        if mask is not None and mask.shape != of.shape:
            raise ValueError(f'{name} must have shape {tuple(of.shape)}, got {tuple(mask.shape)}')
    if pos_mask is None:
        pos_mask = torch.ones_like(pos, dtype=torch.bool)
    if neg is pos:
        # torch.compile (2.12) gives a wrong gradient to a tensor that is an argument of a Function
        # twice.
        neg = pos.view_as(pos)
    pairs = pos.numel() * neg.size(1)
    how = pair_evaluator(surrogate, pairs, method, has_few_positives(pos_mask))
    return _PairwiseSum.apply(pos, neg, pos_mask, neg_mask, how, group)


def pairwise_surrogate_mean(pos: Tensor, neg: Tensor, tau: float, method: str = 'auto') -> Tensor:
    """``l_i = mean_j l(s_i - t_j)`` with the one-sided Huber surrogate.

    Source: stable AP (2025), eq. 2.

    Args:
        pos: (n+,) float scores of the positives.
        neg: (n-,) float scores of the negatives.
        tau: Margin in units of the scores, > 0.
        method: See :func:`pairwise_surrogate_sum`.

    Returns:
        (n+,) means >= 0, float64 if an input is, else float32; 0 where there is no negative.
        Differentiable once in both inputs.

    Raises:
        ValueError: If ``tau`` is not > 0 or an input is not 1-D.
        TypeError: If a score tensor is not of a float dtype.

    Example:
        >>> pairwise_surrogate_mean(torch.tensor([1.0, 0.0]),
        ...                         torch.tensor([0.5, -2.0]), tau=1.0)
        tensor([0.1250, 1.0000])
    """
    if pos.dim() != 1 or neg.dim() != 1:
        raise ValueError(
            f'pos and neg must be 1-D, got shapes {tuple(pos.shape)} and {tuple(neg.shape)}'
        )
    total = pairwise_surrogate_sum(pos[None], neg[None], OneSidedHuber(tau), method=method)[0]
    dtype = torch.promote_types(torch.promote_types(pos.dtype, neg.dtype), torch.float32)
    return (total / max(neg.numel(), 1)).to(dtype)
