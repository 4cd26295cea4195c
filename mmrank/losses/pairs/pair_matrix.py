"""Sums of a surrogate over all pairs of a positive and a negative of a list.

The one-sided Huber is summed exactly in near-linear time and linear memory (``interval_sums``),
other surrogates and small problems by the matrix of pairs, in blocks of bounded size.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from mmrank.autograd import is_compiling, on_host, once_differentiable

#: Infinite scores act as this float32: its square, summed over any list, is finite in float64.
SCORE_LIMIT = 1e30
# Far below every score, and far enough from infinity to be multiplied.
_FAR_BELOW = {torch.float64: -1e100, torch.float32: -1e36}
# Pairs of a block of the matrix on a device, and bytes of one that a CPU's cache holds.
_PAIRS_PER_BLOCK = 2**20
_CACHED_BYTES = 2**20
# Bytes up to which the slopes are kept for backward, not computed again.
_KEPT_BYTES = 2**23
# Pairs from which it pays to leave padding out.
_PAIRS_TO_REGROUP = 2**15
#: Pairs up to which the matrix is faster than the intervals.
DENSE_PAIRS = 2**18
# Positives of a list up to which it is, on a CPU, for any number of pairs: a pair costs 4 ns there,
# a score of the intervals 35 ns.
_FEW_POSITIVES = 8


def clamp_infinite(scores: Tensor) -> Tensor:
    """Scores within ``+-SCORE_LIMIT``; NaN stays NaN."""
    limit = min(SCORE_LIMIT, torch.finfo(scores.dtype).max)
    return scores.clamp(-limit, limit)


@dataclass(frozen=True)
class Surrogate:
    """A smooth surrogate of the 0-1 pair loss ``l01(x) = 1 if x <= 0 else 0``.

    x is the score of a positive minus that of a negative; far above 0 a surrogate is 0. A subclass
    defines :meth:`terms`. ``tau`` is a margin or temperature in units of the scores, > 0.
    """

    tau: float = 1.0
    value_factor = 1.0
    #: Whether pairs of float32 scores are float32, as their difference has all its digits. Not
    #: where the sums are to be exact, or a square might overflow.
    in_float32 = False

    def __post_init__(self) -> None:
        if not 0 < self.tau < math.inf:
            raise ValueError(f'tau must be a finite number > 0, got {self.tau!r}')

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

    def bound(self, low: float, high: float) -> float:
        """Largest value over pairs of scores in ``[low, high]``: that at ``low - high``."""
        if not -math.inf < low < high < math.inf:
            raise ValueError(f'score range ({low!r}, {high!r}) must be finite with low < high')
        return float(self(torch.tensor(low - high, dtype=torch.float64)))


class OneSidedHuber(Surrogate):
    """``1 - 2x/tau`` for ``x < 0``, ``(1 - x/tau)^2`` for ``0 <= x < tau``, 0 beyond.

    Convex, bounds ``l01``, slope at most ``2/tau``. Source: stable AP (2025), eq. 7.
    """

    value_factor = 2.0

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        z = torch.add(x.new_ones(()), x, alpha=-1 / self.tau, out=x)
        # The slope without its factor; the value is 2 c (z - c/2).
        c = torch.clamp(z, 0, 1, out=slopes)
        return z.sub_(c, alpha=0.5).mul_(c) if values else None


class Sigmoid(Surrogate):
    """``2 sigmoid(-x/tau)``: at most 2, bounds ``l01``, not convex."""

    value_factor = 2.0
    in_float32 = True

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        s = x.mul_(-1 / self.tau).sigmoid_()
        if slopes is not None:
            torch.addcmul(s, s, s, value=-1, out=slopes)
        return s if values else None


class Buffers:
    """Memory that all blocks share, so that it stays in the cache."""

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def like(self, name: str, values: Tensor, dtype: torch.dtype) -> Tensor:
        """Uninitialised memory of the shape of ``values``."""
        size = values.numel()
        memory = self._memory.get(name)
        if memory is None or memory.numel() < size:
            memory = self._memory[name] = torch.empty(size, dtype=dtype, device=values.device)
        return memory[:size].view(values.shape)

    def copy(self, name: str, values: Tensor, dtype: torch.dtype) -> Tensor:
        return self.like(name, values, dtype).copy_(values)


@dataclass
class _Group:
    """Lists with about as many positives."""

    lists: Tensor | None  # (G,) int64 rows, or None for all lists in their order
    columns: Tensor | None  # (G, W) int64 columns of the positives, or None for all
    keep: Tensor  # (G, W) bool, False for padding

    def rows(self, values: Tensor) -> Tensor:
        """The (G, N) rows of (L, N) values."""
        return values if self.lists is None else values.index_select(0, self.lists)

    def positives(self, values: Tensor) -> Tensor:
        """The (G, W) entries of (L, P) values, 0 at padding."""
        values = self.rows(values)
        if self.columns is not None:
            values = values.gather(1, self.columns)
        return torch.where(self.keep, values, 0)

    def put(self, target: Tensor, values: Tensor) -> None:
        """Write (G, W) values of the positives to the (L, P) target."""
        if self.lists is None or self.columns is None:
            target.copy_(values)
            return
        rows = torch.zeros_like(target[: len(values)])
        # Padding comes after the positives: what it writes is not read.
        rows.scatter_(1, self.columns, values)
        target.index_copy_(0, self.lists, rows)


def _groups(pos_mask: Tensor, width: int) -> list[_Group]:
    """Groups of lists with up to 1, 2, 4, ... positives: at most half of each is padding.

    One group of all where little is padding, or where ``width``, the number of negatives, is small.
    """
    everything = [_Group(None, None, pos_mask)]
    # On a device the host would wait for the counts.
    if not on_host(pos_mask) or pos_mask.numel() * width < _PAIRS_TO_REGROUP:
        return everything
    counts = pos_mask.sum(1)
    if 4 * int(counts.sum()) >= 3 * pos_mask.numel():
        return everything
    first = pos_mask.to(torch.int8).argsort(dim=1, descending=True, stable=True)
    # frexp: the exponent e has 2^(e-1) <= count - 1/2 < 2^e.
    level = torch.frexp(counts - 0.5).exponent
    groups = []
    for one in level[counts > 0].unique():
        lists = ((level == one) & (counts > 0)).nonzero()[:, 0]
        columns = first[lists, : int(counts[lists].max())]
        groups.append(_Group(lists, columns, pos_mask[lists].gather(1, columns)))
    return groups


class PairMatrix:
    """Sums of any surrogate by blocks of the (L, P, N) matrix of pairs, added up in float64."""

    def __init__(self, surrogate: Surrogate) -> None:
        self.surrogate = surrogate

    def _dtype(self, pos: Tensor, neg: Tensor) -> torch.dtype:
        least = torch.float32 if self.surrogate.in_float32 else torch.float64
        return torch.promote_types(torch.promote_types(pos.dtype, neg.dtype), least)

    def _blocks(
        self, group: _Group, pos: Tensor, neg: Tensor, neg_mask: Tensor | None, buffers: Buffers
    ) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield lists, columns and their (G, W, n) differences."""
        dtype = self._dtype(pos, neg)
        pos = clamp_infinite(group.positives(pos).to(dtype)).unsqueeze(2)
        neg = group.rows(neg)
        keep = None if neg_mask is None else group.rows(neg_mask)
        # On a device each block launches kernels, and compiling writes each of them out.
        block = _PAIRS_PER_BLOCK
        if on_host(pos):
            block = min(block, _CACHED_BYTES // pos.element_size())
        (lists, width, _), length = pos.shape, neg.size(1)
        columns = max(block // max(width, 1), 1)
        high = max(block // max(width * length, 1), 1)
        for top in range(0, lists, high):
            rows = slice(top, min(top + high, lists))
            for begin in range(0, length, columns):
                part = slice(begin, min(begin + columns, length))
                scores = buffers.copy('scores', neg[rows, part], dtype)
                scores.clamp_(-SCORE_LIMIT, SCORE_LIMIT)
                if keep is not None:
                    # Once for a score, not for a pair.
                    scores.masked_fill_(~keep[rows, part], _FAR_BELOW[dtype])
                own = pos[rows]
                pairs = buffers.like('pairs', own.expand(-1, -1, scores.size(1)), own.dtype)
                yield rows, part, torch.sub(own, scores.unsqueeze(1), out=pairs)

    def sums(
        self,
        pos: Tensor,
        pos_mask: Tensor,
        neg: Tensor,
        neg_mask: Tensor | None,
        *,
        values: bool = True,
        slopes: bool = True,
    ) -> tuple[Tensor, Tensor, tuple]:
        """Sums (0 without ``values``), slopes by ``pos`` (likewise) and what the gradient needs."""
        total = torch.zeros_like(pos, dtype=torch.float64)
        slope = torch.zeros_like(total)
        groups, buffers = _groups(pos_mask, neg.size(1)), Buffers()
        dtype, pairs = self._dtype(pos, neg), sum(g.keep.numel() for g in groups) * neg.size(1)
        keeps, kept = slopes and pairs * torch.finfo(dtype).bits <= 8 * _KEPT_BYTES, []
        for group in groups:
            own = total.new_zeros(2, *group.keep.shape)
            if keeps:
                shape = *group.keep.shape, neg.size(1)
                kept.append(torch.empty(shape, dtype=dtype, device=neg.device))
            for rows, part, x in self._blocks(group, pos, neg, neg_mask, buffers):
                change = None
                if keeps:
                    change = kept[-1][rows, :, part]
                elif slopes:
                    change = buffers.like('slopes', x, x.dtype)
                value = self.surrogate.terms(x, values, change)
                if value is not None:
                    own[0, rows] += value.sum(2)
                if change is not None:
                    own[1, rows] += change.sum(2)
            group.put(total, own[0].mul_(self.surrogate.value_factor))
            group.put(slope, own[1].mul_(self.surrogate.slope_factor))
        return total, slope, (pos, pos_mask, neg_mask, *kept)

    def gradient_of_negatives(self, grad: Tensor, neg: Tensor, *extra) -> Tensor:
        """Gradient by ``neg`` from that of the sums, in its dtype."""
        pos, pos_mask, neg_mask, *kept = extra
        groups, buffers = _groups(pos_mask, neg.size(1)), Buffers()
        out = torch.empty_like(neg, memory_format=torch.contiguous_format)
        if not groups or groups[0].lists is not None:
            out.zero_()  # lists without positives
        for i, group in enumerate(groups):
            weight = (-self.surrogate.slope_factor * group.positives(grad)).unsqueeze(1)
            weight = weight.to(self._dtype(pos, neg))
            if kept:
                own = torch.bmm(weight, kept[i])[:, 0].to(out.dtype)
            else:
                own = group.rows(out)
                for rows, part, x in self._blocks(group, pos, neg, neg_mask, buffers):
                    change = buffers.like('slopes', x, x.dtype)
                    self.surrogate.terms(x, False, change)
                    own[rows, part] = torch.bmm(weight[rows], change)[:, 0]
            if group.lists is not None:
                out.index_copy_(0, group.lists, own)
            elif kept:
                out = own
        return out


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
    is_huber = isinstance(surrogate, OneSidedHuber)
    if method == 'intervals' and not is_huber:
        raise ValueError(
            f'method={method!r} needs the one-sided Huber surrogate, got {type(surrogate).__name__}'
        )
    # They import what stands above.
    if is_compiling():
        from .compiled_sums import CompiledSums

        return CompiledSums(surrogate)
    pairs = pos_mask.numel() * width
    if not is_huber or method == 'pairs' or pairs == 0:
        return PairMatrix(surrogate)
    if method == 'auto':
        few = pos_mask.size(1) <= _FEW_POSITIVES
        # On a device it is not measured, and the host would wait for the count.
        if on_host(pos_mask) and not few:
            few = int(pos_mask.sum()) <= _FEW_POSITIVES * len(pos_mask)
        if pairs <= DENSE_PAIRS or (few and on_host(pos_mask)):
            return PairMatrix(surrogate)
    from .interval_sums import IntervalSums

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
    for name, scores, mask in (('pos', pos, pos_mask), ('neg', neg, neg_mask)):
        if not scores.is_floating_point():
            raise TypeError(
                f'{name} must be of a float dtype, got {scores.dtype}; call {name}.float()'
            )
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
