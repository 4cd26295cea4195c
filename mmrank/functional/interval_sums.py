"""The one-sided Huber surrogate by moments of sorted intervals."""

from collections.abc import Iterator

import torch
from torch import Tensor

from .pairwise_tables import PairwiseTables, clamp_infinite
from .score_binning import CHUNK, ScoreBinner, column_blocks

# Scores per pass where a pass is a kernel launch and not a cache-sized step.
_DEVICE_CHUNK = 2**22


def _blocks(scores: Tensor) -> Iterator[tuple[int | slice, slice]]:
    """Yield (lists, columns): cache-sized on the CPU, large elsewhere."""
    num_lists, width = scores.shape
    if scores.device.type == 'cpu':
        for row in range(num_lists):
            for part in column_blocks(width, CHUNK):
                yield row, part
        return
    for part in column_blocks(
        width, max(_DEVICE_CHUNK // max(num_lists, 1), 1)
    ):
        yield slice(None), part


def _look_up(table: Tensor, bins: Tensor) -> Tensor:
    """Entries of the (K,) or (L, K) table for (n,) or (L, n) bins."""
    if table.dim() == 1:
        return table.index_select(0, bins)
    return table.gather(1, bins.long())


def _add_moments(moments: Tensor, bins: Tensor, u: Tensor) -> None:
    """Add count, sum and sum of squares of u to (3, K) or (3, L, K)."""
    if bins.dim() == 1:
        # Several times faster than a scatter-add on the CPU; on a GPU it
        # would synchronise with the host.
        size = moments.size(-1)
        moments[0] += torch.bincount(bins, minlength=size)
        moments[1] += torch.bincount(bins, u, minlength=size)
        moments[2] += torch.bincount(bins, u.square_(), minlength=size)
        return
    bins = bins.long()
    moments[0].scatter_add_(1, bins, torch.ones_like(u))
    moments[1].scatter_add_(1, bins, u)
    moments[2].scatter_add_(1, bins, u.square())


class IntervalSums:
    """Exact sums in O((P + N) log P) time and O(N) memory per list."""

    def __init__(self, tau: float) -> None:
        self.tau = tau
        self.tables: PairwiseTables | None = None

    def sums(
        self,
        pos: Tensor,
        pos_mask: Tensor,
        neg: Tensor,
        neg_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor, tuple]:
        """Sums, their slopes by ``pos`` and what the gradient will need."""
        dtype = torch.promote_types(neg.dtype, torch.float32)
        tables = PairwiseTables.build(pos, pos_mask, self.tau, dtype)
        self.tables = tables
        all_bins = torch.empty(neg.shape, dtype=torch.int32, device=neg.device)
        moments = tables.p.new_zeros(3, *tables.anchors.shape)
        binner = None
        for row, part in _blocks(neg):
            if isinstance(row, int) and part.start == 0:
                binner = ScoreBinner(tables.thresholds[row], neg.size(1))
            scores = clamp_infinite(neg[row, part].to(dtype))
            if binner is not None:
                bins = binner(scores)
            else:
                bins = torch.searchsorted(
                    tables.thresholds, scores.contiguous(), out_int32=True
                )
            if neg_mask is not None:
                # Interval 0 lies below all windows: it takes what is left out.
                bins.masked_fill_(~neg_mask[row, part], 0)
            all_bins[row, part] = bins
            u = (scores.double() - tables.centre[row]).div_(self.tau)
            u -= _look_up(tables.anchors[row], bins)
            _add_moments(moments[:, row], bins, u)
        total, slope = tables.reduce(moments)
        return total, slope / self.tau, (all_bins,)

    def gradient_of_negatives(
        self, grad: Tensor, neg: Tensor, all_bins: Tensor
    ) -> Tensor:
        """Gradient by ``neg`` from that of the sums, in its dtype."""
        const, by_y = self.tables.slope_coefficients(grad / self.tau)
        out = torch.empty_like(neg, memory_format=torch.contiguous_format)
        for row, part in _blocks(neg):
            y = clamp_infinite(neg[row, part].double())
            y.sub_(self.tables.centre[row]).div_(self.tau)
            bins = all_bins[row, part]
            y.mul_(_look_up(by_y[row], bins))
            out[row, part] = y.add_(_look_up(const[row], bins))
        return out
