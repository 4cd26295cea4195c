"""Surrogates of the 0-1 loss of a pair, and their sums by the matrix of pairs.

The matrix has a block of bounded size at a time, and its sums are added up in float64.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from mmrank.autograd import is_compiling
from mmrank.settings import check_score_range
from mmrank.tensors import clamp_infinite, column_blocks, size_levels

# Pairs of a block of the matrix on a device, and bytes of one that a CPU's cache holds.
_PAIRS_PER_BLOCK = 2**20
_CACHED_BYTES = 2**20
# Bytes up to which the slopes are kept for backward, not computed again.
_KEPT_BYTES = 2**23
# Pairs from which it pays to leave padding out.
_PAIRS_TO_REGROUP = 2**15


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

    def bound(self, low: float, high: float) -> float:
        """Largest value over pairs of scores in ``[low, high]``: that at ``low - high``."""
        check_score_range((low, high))
        return float(self(torch.tensor(low - high, dtype=torch.float64, device='cpu')))


class OneSidedHuber(Surrogate):
    """``1 - 2x/tau`` for ``x < 0``, ``(1 - x/tau)^2`` for ``0 <= x < tau``, 0 beyond.

    Convex, bounds ``l01``, slope at most ``2/tau``. Source: stable AP (2025), eq. 7.

    Example:
        >>> OneSidedHuber(1.0)(torch.tensor([-1.0, 0.0, 0.5]))
        tensor([3.0000, 1.0000, 0.2500])
    """

    @property
    def value_factor(self) -> float:
        return 2.0

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        z = torch.add(x.new_ones(()), x, alpha=-1 / self.tau, out=x)
        # The slope without its factor; the value is 2 c (z - c/2).
        c = torch.clamp(z, 0, 1, out=slopes)
        return z.sub_(c, alpha=0.5).mul_(c) if values else None


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


#: (L, P) float64 sums, their slopes by the positives, and tensors that the gradient needs.
Sums = tuple[Tensor, Tensor, tuple[Tensor, ...]]


def _groups(
    pos_mask: Tensor, width: int, on_host: bool
) -> list[tuple[slice | Tensor, Tensor, Tensor]]:
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
    surrogate: Surrogate,
    pos: Tensor,
    pos_mask: Tensor,
    neg: Tensor,
    neg_mask: Tensor | None,
    on_host: bool,
    values: bool = True,
    slopes: bool = True,
) -> Sums:
    """Sums (0 without ``values``), slopes by ``pos`` (likewise) and what the gradient needs."""
    total = torch.zeros_like(pos, dtype=torch.float64)
    slope = torch.zeros_like(total)
    dtype = _pair_dtype(surrogate, pos, neg)
    groups = _groups(pos_mask, neg.size(1), on_host)
    keeps = False
    if slopes and (on_host or not is_compiling()):
        pairs = sum(keep.numel() for _, _, keep in groups) * neg.size(1)
        keeps = pairs * torch.finfo(dtype).bits <= 8 * _KEPT_BYTES
    kept = []
    for lists, columns, keep in groups:
        own = torch.where(keep, pos[lists].gather(1, columns), 0).to(dtype)
        sums = total.new_zeros(2, *own.shape)
        if keeps:
            kept.append(own.new_empty(*own.shape, neg.size(1)))
        counted, weight = _counted_and_weight(neg_mask, lists, dtype)
        for rows, part, x in _blocks(clamp_infinite(own), neg[lists], counted, on_host):
            change = None
            if keeps:
                change = kept[-1][rows, :, part]
            elif slopes:
                change = torch.empty_like(x)
            value = surrogate.terms(x, values, change)
            for index, terms in enumerate((value, change)):
                if terms is not None and weight is None:
                    sums[index, rows] += terms.sum(2)
                elif terms is not None:
                    sums[index, rows] += torch.bmm(terms, weight[rows, part, None])[..., 0]
        total[lists] = torch.zeros_like(total[lists]).scatter(1, columns, sums[0])
        slope[lists] = torch.zeros_like(slope[lists]).scatter(1, columns, sums[1])
    total *= surrogate.value_factor
    slope *= surrogate.slope_factor
    return total, slope, (pos, pos_mask, *kept)


def matrix_gradient(
    surrogate: Surrogate,
    grad: Tensor,
    neg: Tensor,
    neg_mask: Tensor | None,
    on_host: bool,
    pos: Tensor,
    pos_mask: Tensor,
    *kept: Tensor,
) -> Tensor:
    """(L, N) gradient by the negatives, in their dtype, from the (L, P) one of the sums."""
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
        for rows, part, x in _blocks(clamp_infinite(own), neg[lists], counted, on_host):
            change = torch.empty_like(x)
            surrogate.terms(x, False, change)
            if compiled:
                # A sum that the compiler fuses: a product would write out all pairs.
                slopes[rows, part] = (up[rows].mT * change).sum(1)
            else:
                slopes[rows, part] = torch.bmm(up[rows], change)[:, 0]
        out[lists] = (slopes if weight is None else slopes * weight).to(out.dtype)
    return out
