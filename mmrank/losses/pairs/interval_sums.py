"""The one-sided Huber surrogate by moments of sorted intervals."""

from collections.abc import Iterator

import torch
from torch import Tensor

from mmrank.tensors import SCORE_LIMIT, clamp_infinite, column_blocks

from .buffers import Buffers
from .tables import CHUNK, PairwiseTables, ScoreBinner

# Scores per pass where a pass is a kernel launch and not a cache-sized step.
_DEVICE_CHUNK = 2**22


def _blocks(scores: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield (lists, columns): cache-sized on the CPU, large elsewhere."""
    num_lists, width = scores.shape
    if scores.device.type == 'cpu':
        lists = max(CHUNK // max(width, 1), 1)
        for top in range(0, num_lists, lists):
            rows = slice(top, min(top + lists, num_lists))
            for part in column_blocks(width, CHUNK):
                yield rows, part
        return
    # slice(None) is the path of accelerators.
    for part in column_blocks(width, max(_DEVICE_CHUNK // max(num_lists, 1), 1)):
        yield slice(None), part


def _look_up(table: Tensor, bins: Tensor, out: Tensor) -> Tensor:
    """Entries of the (R, K) table for (R, n) bins.

    On the CPU ``bins`` are (R * n,) entries of the flat table.
    """
    if bins.dim() == 1:
        torch.index_select(table.reshape(-1), 0, bins, out=out.view(-1))
        return out
    return table.gather(1, bins.long())


def _flat(bins: Tensor, table: Tensor) -> Tensor:
    """(R, n) bins as (R * n,) entries of the flat (R, K) table."""
    if len(bins) > 1:
        first = torch.arange(len(bins)) * table.size(1)
        bins = bins + first[:, None]
    return bins.reshape(-1)


def _add_moments(moments: Tensor, bins: Tensor, u: Tensor, buffers: Buffers) -> None:
    """Add count, sum and sum of squares of (R, n) float64 u, overwritten, to (3, R, K) moments.

    ``bins`` are (R, n) or, on the CPU, (R * n,) entries of the flat table.
    """
    if bins.dim() == 1:
        count, first, second = moments.view(3, -1).unbind(0)
        u = u.view(-1)
        # The fastest of the ways to count on a CPU; on a GPU it would synchronise with the host.
        count += torch.bincount(bins, minlength=count.numel())
        bins = buffers.copy('bins', bins, torch.int64)
        first.scatter_add_(0, bins, u)
        second.scatter_add_(0, bins, u.mul_(u))
        return
    bins = bins.long()
    moments[0].scatter_add_(1, bins, torch.ones_like(u))
    moments[1].scatter_add_(1, bins, u)
    moments[2].scatter_add_(1, bins, u.square())


def _is_finite(scores: Tensor) -> bool:
    """Whether all scores are within the limit; False on a GPU."""
    if scores.device.type != 'cpu' or not scores.numel():
        return False
    # As numbers: compared with float16, the limit would be infinite.
    low, high = torch.aminmax(scores)
    return low.item() >= -SCORE_LIMIT and high.item() <= SCORE_LIMIT


class IntervalSums:
    """Exact sums in O((P + N) log P) time and O(N) memory per list."""

    tables: PairwiseTables  # of the positives of the last sums

    def __init__(self, tau: float) -> None:
        self.tau = tau
        self.is_finite = False

    @property
    def has_centre(self) -> bool:
        """Whether a centre is not 0; on a GPU it is not looked at."""
        centre = self.tables.centre
        return centre.device.type != 'cpu' or bool(centre.any())

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
        """Sums, their slopes by ``pos`` and what the gradient will need."""
        dtype = compared_dtype(neg)
        tables = PairwiseTables.build(pos, pos_mask, self.tau, dtype)
        self.tables = tables
        all_bins = empty_bins(pos, neg)
        moments = tables.p.new_zeros(3, *tables.anchors.shape)
        self.is_finite = finite = _is_finite(neg)
        has_anchors = tables.has_anchors
        buffers = Buffers()
        binner = None
        for rows, part in _blocks(neg):
            if binner is None or part.start == 0:
                binner = ScoreBinner(tables.thresholds[rows], neg.size(1), finite)
            scores = neg[rows, part].to(dtype).contiguous()
            scores = scores if finite else clamp_infinite(scores)
            kept = bins = all_bins[rows, part]
            if kept.dtype != torch.int32:
                bins = buffers.like('intervals', scores, torch.int32)
            binner(scores, bins)
            if neg_mask is not None:
                # Interval 0 lies below all windows: it takes what is left out.
                bins *= neg_mask[rows, part]
            if kept is not bins:
                kept.copy_(bins)
            u = self._around_centre(scores, rows, buffers)
            if rows != slice(None):
                bins = _flat(bins, tables.anchors[rows])
            if has_anchors:
                u /= self.tau
                out = buffers.like('entries', u, u.dtype)
                u -= _look_up(tables.anchors[rows], bins, out)
            _add_moments(moments[:, rows], bins, u, buffers)
        if not has_anchors:
            moments[1] /= self.tau
            moments[2] /= self.tau**2
        total, slope = tables.reduce(moments)
        return total, slope / self.tau, (all_bins,)

    def _around_centre(self, scores: Tensor, rows: slice, buffers: Buffers) -> Tensor:
        """(R, n) float64 distances of the scores to the centres."""
        y = buffers.copy('scores', scores, torch.float64)
        return y.sub_(self.tables.centre[rows]) if self.has_centre else y

    def gradient_of_negatives(self, grad: Tensor, neg: Tensor, *extra) -> Tensor:
        """Gradient by ``neg`` from the sums' gradient, in its dtype."""
        (all_bins,) = extra
        const, by_y = self.tables.slope_coefficients(grad / self.tau)
        by_y /= self.tau
        out = torch.empty_like(neg, memory_format=torch.contiguous_format)
        finite = self.is_finite
        buffers = Buffers()
        for rows, part in _blocks(neg):
            scores = neg[rows, part]
            scores = scores if finite else clamp_infinite(scores.double())
            y = self._around_centre(scores, rows, buffers)
            bins = all_bins[rows, part]
            if bins.dtype != torch.int32:
                bins = buffers.copy('intervals', bins, torch.int32)
            if not finite:
                # What is left out may be NaN: its slope is 0, and 0 * NaN is not.
                y.masked_fill_(bins == 0, 0)
            if rows != slice(None):
                bins = _flat(bins, const[rows])
            entries = buffers.like('entries', y, y.dtype)
            y *= _look_up(by_y[rows], bins, entries)
            y += _look_up(const[rows], bins, entries)
            out[rows, part] = y
        return out


def compared_dtype(neg: Tensor) -> torch.dtype:
    return torch.promote_types(neg.dtype, torch.float32)


def empty_bins(pos: Tensor, neg: Tensor) -> Tensor:
    """Memory for the interval of each score, which backward reads.

    Half precision is there to save memory: no more of it than the scores take, where two bytes hold
    the number of intervals. Float32 scores have room, and are faster without the conversion.
    """
    fits = 2 * pos.size(1) <= torch.iinfo(torch.int16).max
    is_half = neg.element_size() == 2
    dtype = torch.int16 if is_half and fits else torch.int32
    return torch.empty(neg.shape, dtype=dtype, device=neg.device)
