"""Surrogates of the 0-1 loss of a pair, and their sums by the matrix of pairs.

The matrix has a block of bounded size at a time, and its sums are added up in float64. A surrogate
may know a faster way, see ``pairs.py``.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import Function, can_sync, is_compiling, once_differentiable
from mmrank.settings import check_score_range
from mmrank.tensors import check_floats, clamp_infinite, column_blocks, size_levels

from .lists import RankedLists

# Pairs of a block of the matrix on a device, and bytes of one that a CPU's cache holds.
_PAIRS_PER_BLOCK = 2**20
_CACHED_BYTES = 2**20
# Bytes up to which the slopes are kept for backward, not computed again.
_KEPT_BYTES = 2**23
# Pairs from which it pays to leave padding out.
_PAIRS_TO_REGROUP = 2**15

#: (L, P) float64 sums, their slopes by the positives, and tensors that the gradient needs.
Sums = tuple[Tensor, Tensor, tuple[Tensor, ...]]


class Pairs(NamedTuple):
    """Positives and negatives of L lists, see :func:`pairwise_surrogate_sum`."""

    pos: Tensor  # (L, P)
    pos_mask: Tensor
    neg: Tensor  # (L, N)
    neg_mask: Tensor | None
    on_host: bool


class Way(NamedTuple):
    """Two functions that sum a surrogate and give the gradient of the negatives."""

    sums: Callable[..., Sums]
    gradient: Callable[..., Tensor]


@dataclass(frozen=True)
class Surrogate:
    """A smooth surrogate of the 0-1 pair loss ``l01(x) = 1 if x <= 0 else 0``.

    x is a positive's score minus a negative's score; far above 0 a surrogate is 0. A subclass
    defines :meth:`terms`. ``tau`` is a margin or temperature in units of the scores, > 0.
    """

    tau: float = 1.0
    #: Whether pairs of float32 scores are float32, as their difference has all its digits. Not
    #: where the sums are to be exact, or a square might overflow.
    in_float32 = False

    def __post_init__(self) -> None:
        if not 0 < self.tau < math.inf:
            raise ValueError(f'tau must be > 0 and finite, got {self.tau!r}')

    # Properties: of a class attribute the compiler makes a number that may change.
    @property
    def value_factor(self) -> float:
        return 1.0

    @property
    def slope_factor(self) -> float:
        return -2 / self.tau

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        """Values over ``value_factor`` at differences x, any shape, which are overwritten.

        ``slopes`` receives the derivatives over ``slope_factor``. None without ``values``.
        """
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        """Value at score differences of any shape and float dtype; no gradient."""
        return self.value_factor * cast(Tensor, self.terms(clamp_infinite(x.detach())))

    def way(self, pos_mask: Tensor, width: int, on_host: bool) -> Way:
        """The way that is fastest for (L, P) positives and ``width`` negatives."""
        return MATRIX

    def bound(self, low: float, high: float) -> float:
        """Largest value over pairs of scores in ``[low, high]``: that at ``low - high``."""
        check_score_range((low, high))
        return float(self(torch.tensor(low - high, dtype=torch.float64, device='cpu')))


class Sigmoid(Surrogate):
    """``2 sigmoid(-x/tau)``: at most 2, bounds ``l01``, not convex."""

    in_float32 = True

    @property
    def value_factor(self) -> float:
        return 2.0

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        s = x.mul_(-1 / self.tau).sigmoid_()
        if slopes is not None:
            torch.addcmul(s, s, s, value=-1, out=slopes)
        return s if values else None


class SquaredHinge(Surrogate):
    """``max(0, 1 - x/tau)^2``: grows quadratically, bounds ``l01``."""

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        z = torch.add(x.new_ones(()), x, alpha=-1 / self.tau, out=x).clamp_(min=0)
        if slopes is not None:
            slopes.copy_(z)
        return z.square_() if values else None


class OneSidedSigmoid(Surrogate):
    """``tanh(-x / (2 tau))`` for ``x < 0``, else 0: a lower bound of ``l01``, for denominators.

    Source: SOPRC (NeurIPS 2022), ``l2`` of eq. 7.
    """

    in_float32 = True

    @property
    def slope_factor(self) -> float:
        return -1 / (2 * self.tau)

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        steep = torch.lt(x, 0, out=torch.empty_like(x))
        value = x.clamp_(max=0).mul_(-1 / (2 * self.tau)).tanh_()
        if slopes is not None:
            # The square of NaN is NaN, also where it counts as not steep.
            torch.addcmul(x.new_ones(()), value, value, value=-1, out=slopes).mul_(steep)
        return value if values else None


def _groups(
    pos_mask: Tensor, width: int, on_host: bool
) -> Sequence[tuple[slice | Tensor, Tensor, Tensor]]:
    """Rows, (G, W) columns of the positives, and their (G, W) mask, False for padding.

    Lists with up to 1, 2, 4, ... positives share a group: at most half of each is padding. All
    lists do where little is padding, or where ``width``, the number of negatives, is small.
    """
    every = torch.arange(pos_mask.size(1), device=pos_mask.device).expand(pos_mask.shape)
    everything = [(slice(None), every, pos_mask)]
    # On a device the host would wait for the counts.
    if not on_host or pos_mask.numel() * width < _PAIRS_TO_REGROUP:
        return everything
    counts = pos_mask.sum(1)
    if 4 * int(counts.sum()) >= 3 * pos_mask.numel():
        return everything
    first = pos_mask.to(torch.int8).argsort(dim=1, descending=True, stable=True)
    level = torch.where(counts > 0, size_levels(counts), -1)
    groups = []
    for one in level[counts > 0].unique():
        lists = (level == one).nonzero()[:, 0]
        columns = first[lists, : int(counts[lists].max())]
        groups.append((lists, columns, pos_mask[lists].gather(1, columns)))
    return groups


def _pair_dtype(surrogate: Surrogate, pos: Tensor, neg: Tensor) -> torch.dtype:
    least = torch.float32 if surrogate.in_float32 else torch.float64
    return torch.promote_types(torch.promote_types(pos.dtype, neg.dtype), least)


def _blocks(
    pos: Tensor, neg: Tensor, counted: Tensor | None, on_host: bool
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield lists, columns and (G, W, n) differences of (G, W) positives and (G, N) negatives."""
    lists, width = pos.shape
    length = neg.size(1)
    pos = clamp_infinite(pos)
    neg = clamp_infinite(neg.to(pos.dtype)).contiguous()
    if counted is not None:
        # Below every score, and far enough from infinity to be multiplied.
        neg = neg.masked_fill(~counted, -1e36 if pos.dtype == torch.float32 else -1e100)
    block = _PAIRS_PER_BLOCK
    if on_host:
        block = min(block, _CACHED_BYTES // pos.element_size())
    columns = column_blocks(length, max(block // max(width, 1), 1), on_host)
    for rows in column_blocks(lists, max(block // max(width * length, 1), 1), on_host):
        for part in columns:
            yield rows, part, pos[rows].unsqueeze(2) - neg[rows, part].unsqueeze(1)


def _counted_and_weight(
    neg_mask: Tensor | None, lists: slice | Tensor, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    """(G, N) bool of the negatives of some lists, and their weights, or None for each."""
    if neg_mask is None:
        return None, None
    own = neg_mask[lists]
    if own.dtype == torch.bool:
        return own, None
    return own > 0, own.to(dtype)


def matrix_sums(
    surrogate: Surrogate, pairs: Pairs, values: bool = True, slopes: bool = True
) -> Sums:
    """Sums (0 without ``values``), slopes by ``pos`` (likewise) and what the gradient needs."""
    pos, pos_mask, neg, neg_mask, on_host = pairs
    total = torch.zeros_like(pos, dtype=torch.float64)
    slope = torch.zeros_like(total)
    dtype = _pair_dtype(surrogate, pos, neg)
    groups = _groups(pos_mask, neg.size(1), on_host)
    keeps = False
    if slopes and (on_host or not is_compiling()):
        number = sum(keep.numel() for _, _, keep in groups) * neg.size(1)
        keeps = number * torch.finfo(dtype).bits <= 8 * _KEPT_BYTES
    kept = []
    for lists, columns, keep in groups:
        own = torch.where(keep, pos[lists].gather(1, columns), 0).to(dtype)
        sums = total.new_zeros(2, *own.shape)
        if keeps:
            kept.append(own.new_empty(*own.shape, neg.size(1)))
        counted, weight = _counted_and_weight(neg_mask, lists, dtype)
        for rows, part, x in _blocks(own, neg[lists], counted, on_host):
            change = None
            if keeps:
                change = kept[-1][rows, :, part]
            elif slopes:
                change = torch.empty_like(x)
            value = surrogate.terms(x, values, change)
            for index, terms in enumerate((value, change)):
                if terms is None:
                    continue
                if weight is None:
                    sums[index, rows] += terms.sum(2)
                else:
                    sums[index, rows] += torch.bmm(terms, weight[rows, part, None])[..., 0]
        total[lists] = torch.zeros_like(total[lists]).scatter(1, columns, sums[0])
        slope[lists] = torch.zeros_like(slope[lists]).scatter(1, columns, sums[1])
    total *= surrogate.value_factor
    slope *= surrogate.slope_factor
    return total, slope, tuple(kept)


def matrix_gradient(surrogate: Surrogate, grad: Tensor, pairs: Pairs, *kept: Tensor) -> Tensor:
    """(L, N) gradient by the negatives, in their dtype, from the (L, P) one of the sums."""
    pos, pos_mask, neg, neg_mask, on_host = pairs
    dtype = _pair_dtype(surrogate, pos, neg)
    compiled = not on_host and is_compiling()
    out = torch.zeros_like(neg, memory_format=torch.contiguous_format)
    for i, (lists, columns, keep) in enumerate(_groups(pos_mask, neg.size(1), on_host)):
        up = torch.where(keep, grad[lists].gather(1, columns), 0)
        up = (-surrogate.slope_factor * up).to(dtype).unsqueeze(1)
        counted, weight = _counted_and_weight(neg_mask, lists, dtype)
        if kept:
            slopes = torch.bmm(up, kept[i])[:, 0]
            out[lists] = (slopes if weight is None else slopes * weight).to(out.dtype)
            continue
        own = torch.where(keep, pos[lists].gather(1, columns), 0).to(dtype)
        slopes = own.new_empty(len(own), neg.size(1))
        for rows, part, x in _blocks(own, neg[lists], counted, on_host):
            change = torch.empty_like(x)
            surrogate.terms(x, False, change)
            if compiled:
                # A sum that the compiler fuses: a product would write out all pairs.
                slopes[rows, part] = (up[rows].mT * change).sum(1)
            else:
                slopes[rows, part] = torch.bmm(up[rows], change)[:, 0]
        out[lists] = (slopes if weight is None else slopes * weight).to(out.dtype)
    return out


MATRIX = Way(matrix_sums, matrix_gradient)


class _PairSum(Function):
    @staticmethod
    def forward(ctx, pos, neg, pos_mask, neg_mask, surrogate, group, on_host):
        way = surrogate.way(pos_mask, neg.size(1), on_host)
        slopes = any(ctx.needs_input_grad[:2]) or (not on_host and is_compiling())
        pairs = Pairs(pos, pos_mask, neg, neg_mask, on_host)
        total, slope, saved = way.sums(surrogate, pairs, slopes=slopes)
        if group is not None:
            # Sums over negatives add up over the ranks that hold them.
            both = torch.stack([total, slope])
            dist.all_reduce(both, group=group)
            total, slope = both
        ctx.surrogate = surrogate
        ctx.way = way
        ctx.save_for_backward(pos, neg, pos_mask, slope, neg_mask, *saved)
        return torch.where(pos_mask, total, 0)

    @staticmethod
    @once_differentiable('pairwise_surrogate_sum')
    def backward(ctx, grad):
        pos, neg, pos_mask, slope, neg_mask, *saved = ctx.saved_tensors
        grad = torch.where(pos_mask, grad, 0)
        grad_pos = grad_neg = None
        if ctx.needs_input_grad[0]:
            grad_pos = torch.where(pos_mask, grad * slope, 0).to(pos.dtype)
        if ctx.needs_input_grad[1]:
            # Not as in forward: what was built in eager mode may be compiled by now.
            pairs = Pairs(pos, pos_mask, neg, neg_mask, can_sync(neg))
            grad_neg = ctx.way.gradient(ctx.surrogate, grad, pairs, *saved)
        return grad_pos, grad_neg, None, None, None, None, None


def pairwise_surrogate_sum(
    pos: Tensor,
    neg: Tensor,
    surrogate: Surrogate,
    *,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    group=None,
    on_host: bool | None = None,
) -> Tensor:
    """``sum_j l(s_i - t_j)`` for every positive of L lists at once.

    The one-sided Huber takes O((P + N) log P) time and O(N) memory, other surrogates all P * N
    pairs, in blocks.

    Args:
        pos: (L, P) float scores of the positives, padded.
        neg: (L, N) float scores, any strides.
        surrogate: The pair surrogate l.
        pos_mask: (L, P) bool, False for padding. None: no padding.
        neg_mask: (L, N) bool, True at the negatives, or float weights >= 0: a negative of weight w
            counts as w. None: all scores are, and count once.
        group: Process group over which the negatives are spread: every rank passes the same ``pos``
            and its own ``neg``, and receives the sums over all and the gradient of its own.
        on_host: Whether the host may look at the scores, see :attr:`RankedLists.on_host`. None:
            what the scores say.

    Returns:
        (L, P) float64 sums, 0 at padding; differentiable once, in ``pos`` and ``neg``. Infinite
        scores act as +-1e30; NaN gives NaN.
    """
    check_floats(pos=pos, neg=neg)
    for name, scores, mask in (('pos', pos, pos_mask), ('neg', neg, neg_mask)):
        if mask is not None and mask.shape != scores.shape:
            shape = tuple(scores.shape)
            raise ValueError(f'{name}_mask must have shape {shape}, got {tuple(mask.shape)}')
    if pos.dim() != 2 or neg.dim() != 2 or pos.size(0) != neg.size(0):
        what = 'pos and neg must be (lists, scores) with as many lists'
        raise ValueError(f'{what}, got shapes {tuple(pos.shape)} and {tuple(neg.shape)}')
    if pos_mask is None:
        pos_mask = torch.ones_like(pos, dtype=torch.bool)
    if on_host is None:
        on_host = can_sync(pos)
    if neg is pos:
        # torch.compile (2.12) gives a wrong gradient to a tensor that is an argument of a Function
        # twice.
        neg = pos.view_as(pos)
    if neg_mask is pos_mask:
        neg_mask = pos_mask.view_as(pos_mask)  # nor does it trace that
    if not on_host and is_compiling():
        # By texts, which are constants of the graph: torch.compile (2.12) does not trace two
        # functions that share a number.
        texts = [float(x).hex() for x in astuple(surrogate)]
        surrogate = type(surrogate)(*map(float.fromhex, texts))
    return _PairSum.apply(pos, neg, pos_mask, neg_mask, surrogate, group, on_host)


def sum_over_negatives(
    lists: RankedLists, surrogate: Surrogate, counts: Tensor | None = None
) -> Tensor:
    """:func:`pairwise_surrogate_sum` of the positives and the negatives of lists.

    Or of the positives and all scores, which count as (L, N) ``counts`` say.
    """
    return pairwise_surrogate_sum(
        lists.pos,
        lists.scores,
        surrogate,
        pos_mask=lists.pos_mask,
        neg_mask=lists.negatives if counts is None else counts,
        group=lists.group,
        on_host=lists.on_host,
    )


def sum_over_positives(lists: RankedLists, surrogate: Surrogate) -> Tensor:
    """The same of the positives and the positives, each with itself, too."""
    masks = dict(pos_mask=lists.pos_mask, neg_mask=lists.positives)
    return pairwise_surrogate_sum(lists.pos, lists.pos, surrogate, **masks, on_host=lists.on_host)
