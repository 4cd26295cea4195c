"""The matrix of all pairs of positives and negatives, in blocks."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .opaque_operator import is_compiling
from .surrogates import Surrogate, clamp_infinite

# Pairs up to which the slopes are kept for backward, not computed again.
_KEPT_PAIRS = 2**20
# Pairs from which it pays to leave padding out.
_PAIRS_TO_REGROUP = 2**15
# Far below every score, and far enough from infinity to be multiplied.
_FAR_BELOW = -1e100


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
        Groups of lists with up to 1, 2, 4, ... positives; lists without
        positives are in none. One group of all where little is padding.
    """
    everything = [_Group(None, None, pos_mask)]
    if (
        # Elsewhere the host would wait for the counts.
        pos_mask.device.type != 'cpu'
        or is_compiling()
        or pos_mask.numel() * width < _PAIRS_TO_REGROUP
    ):
        return everything
    counts = pos_mask.sum(1)
    if 4 * int(counts.sum()) >= 3 * pos_mask.numel():
        return everything
    first = pos_mask.to(torch.int8).argsort(
        dim=1, descending=True, stable=True
    )
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


class _Differences:
    """Score differences of a group, block by block.

    Args:
        group: Lists to take.
        pos: (L, P) scores of the positives.
        neg: (L, N) scores of the negatives.
        mask: (L, N) bool, False for what is no negative, or None.
        vanishes: Whether the surrogate is 0 far above 0.
    """

    def __init__(
        self,
        group: _Group,
        pos: Tensor,
        neg: Tensor,
        mask: Tensor | None,
        vanishes: bool,
    ) -> None:
        self.pos = clamp_infinite(group.positives(pos).double()).unsqueeze(2)
        self.neg = group.rows(neg)
        self.mask = None if mask is None else group.rows(mask)
        self.vanishes = vanishes

    def __call__(
        self, rows: slice, part: slice
    ) -> tuple[Tensor, Tensor | None]:
        """(G, W, n) differences of the block and what counts of them."""
        neg = clamp_infinite(self.neg[rows, part].double())
        keep = None if self.mask is None else self.mask[rows, part]
        if keep is not None and self.vanishes:
            # Once for a score, not for a pair.
            neg, keep = torch.where(keep, neg, _FAR_BELOW), None
        x = self.pos[rows] - neg.unsqueeze(1)
        return x, None if keep is None else keep.unsqueeze(1)


class PairMatrix:
    """Any surrogate, over blocks of the (L, P, N) pair matrix in float64.

    Lists go in groups with about as many positives, so that little work is
    done on padding. Where the matrix is small, its slopes are kept.

    Args:
        surrogate: The pair surrogate l.
        block: Pairs of one block, each a float64.
    """

    def __init__(self, surrogate: Surrogate, block: int) -> None:
        self.surrogate, self.block = surrogate, block
        self.has_terms = hasattr(surrogate, 'pair_terms')
        self.factor = getattr(surrogate, 'slope_factor', 1.0)

    def _blocks(
        self, group: _Group, neg: Tensor
    ) -> Iterator[tuple[slice, slice]]:
        """Lists and columns of the blocks of a group."""
        lists, width = group.keep.shape
        columns = max(self.block // max(width, 1), 1)
        high = max(self.block // max(width * neg.size(1), 1), 1)
        for top in range(0, lists, high):
            for begin in range(0, neg.size(1), columns):
                yield slice(top, top + high), slice(begin, begin + columns)

    def _terms(
        self, x: Tensor, keep: Tensor | None, values: bool, slopes: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """Sums of the values, and slopes over their factor."""
        if self.has_terms:
            return self.surrogate.pair_terms(x, values, slopes)
        value = self.surrogate(x) if values else None
        change = self.surrogate.derivative(x) if slopes else None
        if keep is not None:
            value = None if value is None else torch.where(keep, value, 0)
            change = None if change is None else torch.where(keep, change, 0)
        return None if value is None else value.sum(2), change

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
        keeps = _pairs(groups, neg) <= _KEPT_PAIRS
        kept = []
        for group in groups:
            own = torch.zeros(
                (2, *group.keep.shape), dtype=total.dtype, device=pos.device
            )
            differences = _Differences(
                group, pos, neg, neg_mask, self.has_terms
            )
            for rows, part in self._blocks(group, neg):
                x, keep = differences(rows, part)
                value, change = self._terms(x, keep, values, slopes)
                if values:
                    own[0, rows] += value
                if slopes:
                    own[1, rows] += change.sum(2)
                    if keeps:
                        kept.append(change)
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
        slopes = iter(kept)
        for group in _groups(pos_mask, neg.size(1)):
            weight = (-self.factor * group.positives(grad)).unsqueeze(1)
            own = group.rows(out)
            differences = None
            for rows, part in self._blocks(group, neg):
                if kept:
                    change = next(slopes)
                else:
                    differences = differences or _Differences(
                        group, pos, neg, neg_mask, self.has_terms
                    )
                    x, keep = differences(rows, part)
                    _, change = self._terms(x, keep, False, True)
                own[rows, part] = torch.bmm(weight[rows], change)[:, 0]
            if group.lists is not None:
                out.index_copy_(0, group.lists, own)
        return out
