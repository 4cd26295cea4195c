"""The matrix of all pairs of positives and negatives, in blocks."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.autograd import on_host

from .surrogates import SCORE_LIMIT, Surrogate, clamp_infinite

# Pairs of a block that stays in the cache of a CPU: 1 MiB.
_CACHED_PAIRS = 2**17
# Pairs up to which the slopes are kept for backward, not computed again.
_KEPT_PAIRS = 2**20
# Pairs from which it pays to leave padding out.
_PAIRS_TO_REGROUP = 2**15
# Far below every score, and far enough from infinity to be multiplied.
_FAR_BELOW = -1e100


class Buffers:
    """Memory that all blocks share, so that it stays in the cache."""

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def like(self, name: str, values: Tensor, dtype: torch.dtype) -> Tensor:
        """Uninitialised memory of the shape of ``values``."""
        size = values.numel()
        memory = self._memory.get(name)
        if memory is None or memory.numel() < size:
            memory = torch.empty(size, dtype=dtype, device=values.device)
            self._memory[name] = memory
        return memory[:size].view(values.shape)

    def copy(self, name: str, values: Tensor, dtype: torch.dtype) -> Tensor:
        """A copy of ``values``."""
        return self.like(name, values, dtype).copy_(values)


@dataclass
class _Group:
    """Lists with about as many positives.

    Attributes:
        lists: (G,) int64 rows, or None for all lists in their order.
        columns: (G, W) int64 columns of ``pos``, or None for all.
        keep: (G, W) bool, False for padding.
    """

    lists: Tensor | None
    columns: Tensor | None
    keep: Tensor

    def rows(self, values: Tensor) -> Tensor:
        """The (G, N) rows of (L, N) values."""
        if self.lists is None:
            return values
        return values.index_select(0, self.lists)

    def positives(self, values: Tensor) -> Tensor:
        """The (G, W) entries of (L, P) values, 0 at padding."""
        values = self.rows(values)
        if self.columns is not None:
            values = values.gather(1, self.columns)
        return torch.where(self.keep, values, 0)

    def put(self, target: Tensor, values: Tensor) -> None:
        """Write (G, W) values of the positives to the (L, P) target."""
        if self.lists is None:
            target.copy_(values)
            return
        rows = torch.zeros_like(target[: len(values)])
        # Padding comes after the positives: what it writes is not read.
        rows.scatter_(1, self.columns, values)
        target.index_copy_(0, self.lists, rows)


def _groups(pos_mask: Tensor, width: int) -> list[_Group]:
    """Group lists so that at most half of a group is padding.

    Args:
        pos_mask: (L, P) bool, False for padding.
        width: Number of negatives.

    Returns:
        Groups of lists with up to 1, 2, 4, ... positives; lists without positives are in none. One
        group of all where little is padding.
    """
    everything = [_Group(None, None, pos_mask)]
    if (
        # Elsewhere the host would wait for the counts.
        not on_host(pos_mask) or pos_mask.numel() * width < _PAIRS_TO_REGROUP
    ):
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
        keep = pos_mask[lists].gather(1, columns)
        groups.append(_Group(lists, columns, keep))
    return groups


def _pairs(groups: list[_Group], neg: Tensor) -> int:
    return sum(group.keep.numel() for group in groups) * neg.size(1)


class _Panels:
    """Scores of a group in float64, some lists at a time.

    Args:
        group: Lists to take.
        pos: (L, P) scores of the positives.
        neg: (L, N) scores of the negatives.
        mask: (L, N) bool, False for what is no negative, or None.
        vanishes: Whether the surrogate is 0 far above 0.
        block: Most pairs of one block.
    """

    def __init__(
        self,
        group: _Group,
        pos: Tensor,
        neg: Tensor,
        mask: Tensor | None,
        vanishes: bool,
        block: int,
    ) -> None:
        self.pos = clamp_infinite(group.positives(pos).double()).unsqueeze(2)
        self.neg = group.rows(neg)
        self.mask = None if mask is None else group.rows(mask)
        self.vanishes = vanishes
        # A device launches a kernel for each block, and compiling writes
        # each of them out.
        self.block = min(block, _CACHED_PAIRS) if on_host(pos) else block
        self._buffers = Buffers()

    def __iter__(self) -> Iterator[tuple[slice, slice, Tensor, Tensor | None]]:
        """Lists, columns, (G, W, n) differences and what counts of them."""
        lists, width, _ = self.pos.shape
        length = self.neg.size(1)
        columns = max(self.block // max(width, 1), 1)
        high = max(self.block // max(width * length, 1), 1)
        for top in range(0, lists, high):
            rows = slice(top, min(top + high, lists))
            for begin in range(0, length, columns):
                part = slice(begin, min(begin + columns, length))
                yield rows, part, *self._differences(rows, part)

    def slopes_like(self, x: Tensor) -> Tensor:
        """Memory for the slopes at the differences of a block."""
        return self._buffers.like('slopes', x, x.dtype)

    def _differences(self, rows: slice, part: slice) -> tuple[Tensor, Tensor | None]:
        neg, pos = self.neg[rows, part], self.pos[rows]
        keep = None if self.mask is None else self.mask[rows, part]
        scores = self._buffers.copy('scores', neg, pos.dtype)
        scores.clamp_(-SCORE_LIMIT, SCORE_LIMIT)
        if keep is not None and self.vanishes:
            # Once for a score, not for a pair.
            scores.masked_fill_(~keep, _FAR_BELOW)
            keep = None
        wide = pos.expand(-1, -1, neg.size(1))
        pairs = self._buffers.like('pairs', wide, pos.dtype)
        torch.sub(pos, scores.unsqueeze(1), out=pairs)
        return pairs, None if keep is None else keep.unsqueeze(1)


class PairMatrix:
    """Any surrogate, over blocks of the (L, P, N) pair matrix in float64.

    Lists go in groups with about as many positives, so that little work is done on padding. Where
    the matrix is small, its slopes are kept.

    Args:
        surrogate: The pair surrogate l.
        block: Most pairs of one block, each a float64.
    """

    def __init__(self, surrogate: Surrogate, block: int) -> None:
        self.surrogate, self.block = surrogate, block
        self.has_terms = hasattr(surrogate, 'pair_terms')
        self.factor = getattr(surrogate, 'slope_factor', 1.0)

    def _panels(self, group: _Group, pos, neg, neg_mask) -> _Panels:
        return _Panels(group, pos, neg, neg_mask, self.has_terms, self.block)

    def _terms(
        self, x: Tensor, keep: Tensor | None, values: bool, slopes: Tensor | None
    ) -> Tensor | None:
        """Sums of the values; slopes over their factor go to ``slopes``."""
        if self.has_terms:
            return self.surrogate.pair_terms(x, values, slopes)
        value = self.surrogate(x) if values else None
        if slopes is not None:
            slopes.copy_(self.surrogate.derivative(x))
            if keep is not None:
                slopes.masked_fill_(~keep, 0)
        if value is not None and keep is not None:
            value = torch.where(keep, value, 0)
        return None if value is None else value.sum(2)

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
        """Sums, their slopes by ``pos`` and what the gradient will need.

        Without ``values`` the sums are 0, without ``slopes`` the slopes.
        """
        total = torch.zeros_like(pos, dtype=torch.float64)
        slope = torch.zeros_like(total)
        groups = _groups(pos_mask, neg.size(1))
        keeps = slopes and _pairs(groups, neg) <= _KEPT_PAIRS
        kept = []
        for group in groups:
            own = total.new_zeros(2, *group.keep.shape)
            if keeps:
                kept.append(own.new_empty(*group.keep.shape, neg.size(1)))
            panels = self._panels(group, pos, neg, neg_mask)
            for rows, part, x, keep in panels:
                change = None
                if keeps:
                    change = kept[-1][rows, :, part]
                elif slopes:
                    change = panels.slopes_like(x)
                value = self._terms(x, keep, values, change)
                if values:
                    own[0, rows] += value
                if slopes:
                    own[1, rows] += change.sum(2)
            group.put(total, own[0])
            group.put(slope, own[1].mul_(self.factor))
        return total, slope, (pos, pos_mask, neg_mask, *kept)

    def gradient_of_negatives(
        self,
        grad: Tensor,
        neg: Tensor,
        pos: Tensor,
        pos_mask: Tensor,
        neg_mask: Tensor | None,
        *kept: Tensor,
    ) -> Tensor:
        """Gradient by ``neg`` from that of the sums, in its dtype."""
        out = torch.zeros_like(neg, memory_format=torch.contiguous_format)
        for i, group in enumerate(_groups(pos_mask, neg.size(1))):
            weight = (-self.factor * group.positives(grad)).unsqueeze(1)
            if kept:
                own = torch.bmm(weight, kept[i])[:, 0].to(out.dtype)
            else:
                own = group.rows(out)
                panels = self._panels(group, pos, neg, neg_mask)
                for rows, part, x, keep in panels:
                    change = panels.slopes_like(x)
                    self._terms(x, keep, False, change)
                    own[rows, part] = torch.bmm(weight[rows], change)[:, 0]
            if group.lists is not None:
                out.index_copy_(0, group.lists, own)
            elif kept:
                out = own
        return out
