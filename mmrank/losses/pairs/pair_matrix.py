"""Sums of any surrogate by the matrix of pairs, in blocks of bounded size."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.autograd import can_sync
from mmrank.tensors import SCORE_LIMIT, clamp_infinite, size_levels

from .buffers import Buffers
from .surrogates import Surrogate

# Far below every score, and far enough from infinity to be multiplied.
_FAR_BELOW = {torch.float64: -1e100, torch.float32: -1e36}
# Pairs of a block of the matrix on a device, and bytes of one that a CPU's cache holds.
_PAIRS_PER_BLOCK = 2**20
_CACHED_BYTES = 2**20
# Bytes up to which the slopes are kept for backward, not computed again.
_KEPT_BYTES = 2**23
# Pairs from which it pays to leave padding out.
_PAIRS_TO_REGROUP = 2**15


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
    if not can_sync(pos_mask) or pos_mask.numel() * width < _PAIRS_TO_REGROUP:
        return everything
    counts = pos_mask.sum(1)
    if 4 * int(counts.sum()) >= 3 * pos_mask.numel():
        return everything
    first = pos_mask.to(torch.int8).argsort(dim=1, descending=True, stable=True)
    level = size_levels(counts)
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
        if can_sync(pos):
            block = min(block, _CACHED_BYTES // pos.element_size())
        lists, width, _ = pos.shape
        length = neg.size(1)
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
        groups = _groups(pos_mask, neg.size(1))
        buffers = Buffers()
        dtype = self._dtype(pos, neg)
        pairs = sum(g.keep.numel() for g in groups) * neg.size(1)
        keeps = slopes and pairs * torch.finfo(dtype).bits <= 8 * _KEPT_BYTES
        kept = []
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
        """Gradient by ``neg`` from the sums' gradient, in its dtype."""
        pos, pos_mask, neg_mask, *kept = extra
        groups = _groups(pos_mask, neg.size(1))
        buffers = Buffers()
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
