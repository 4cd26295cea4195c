"""Sums of a surrogate over all pairs of a positive and a negative of a list.

The one-sided Huber l is summed without the pairs. With ``x = s - t`` of a positive s and a negative
t it is ``(1 - x/tau)^2`` in the window ``s - tau < t <= s``, ``1 - 2x/tau`` above it and 0 below.
The thresholds s and ``s - tau`` of all positives cut the line into intervals. Within one of them a
negative is in the same branch for every positive. So its sums need, of each interval, the number of
the negatives, their sum and their sum of squares: O((P + N) log P) time and O(N) memory.

Squares of large scores would cancel. So each interval of a window has an anchor, a whole number of
tau away from a centre, and the moments are of the distance u to it, in units of tau: ``|u| <= 1``.

On a CPU a binary search costs one mispredicted branch per halving and score: 90 ms for 3.5 million
scores and 1,500 thresholds. A uniform grid over the thresholds answers a score with one look-up
and, as its cell may hold a threshold, one comparison. Only the scores of a cell that holds several
are searched.

Other surrogates, and small problems, go over the matrix of pairs: ``pairs_smooth.py``.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from mmrank.autograd import Function, is_compiling, once_differentiable
from mmrank.tensors import at_least_float32, clamp_infinite, column_blocks

from .pairs_smooth import MATRIX, Pairs, Sums, Surrogate, Way

#: Pairs up to which the matrix is faster than the intervals.
DENSE_PAIRS = 2**18
# Positives of a list up to which it is, on a CPU, for any number of pairs: a pair costs 4 ns there,
# a score of the intervals 35 ns.
_FEW_POSITIVES = 8
# On a CPU, anchors up to this far from the centre are all moved to it, which saves a look-up for
# each score and costs at most two decimal digits of float64.
_NEAR = 8.0
# Scores of a block: few enough that its temporaries stay in a CPU's cache; and on a device.
_CACHED_BLOCK = 2**18
_BLOCK = 2**22
# Scores of a list from which a grid costs less than it saves.
_GRID_SCORES = 2**12
# Cells of a grid for each threshold, of which a quarter of the scores is enough, and their least
# and largest number: beyond it the table leaves the cache.
_CELLS_PER_THRESHOLD = 16
_LEAST_CELLS = 2**10
_MOST_CELLS = 2**20
# Thresholds so close that cells per unit of score might be infinite.
_NO_WIDTH = 1e-30


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

    def way(self, pos_mask: Tensor, width: int, on_host: bool) -> Way:
        # A subclass has other values.
        if type(self) is not OneSidedHuber:
            return MATRIX
        # The size of a compiled graph is not known.
        if not on_host and is_compiling():
            return _INTERVALS
        if pos_mask.numel() * width <= DENSE_PAIRS:
            return MATRIX
        if on_host and int(pos_mask.sum()) <= _FEW_POSITIVES * len(pos_mask):
            return MATRIX
        return _INTERVALS


class _Intervals(NamedTuple):
    """What depends on the positives alone: L lists, P positives, T = 2P thresholds, K = T + 1.

    Interval k holds the scores above threshold k - 1 and not above threshold k.
    """

    tau: Tensor  # () float64; a number would not reach the backward of a compiled graph
    thresholds: Tensor  # (L, T) float64, ascending; padding is +inf at the end
    centre: Tensor  # (L, 1) float64 origin of y, which is in units of tau
    covered: Tensor  # (L, K) bool, True in the window of some positive
    anchors: Tensor  # (L, K) float64 whole numbers, 0 where not covered
    p: Tensor  # (L, P) float64 y of the positives
    q: Tensor  # (L, P) float64 ``1 - p + a`` of the highest anchor a of the window
    #: (4, L, P) indices. The window of a positive is ``edges[0] <= k < edges[3]``; its anchor is
    #: ``a - 2`` first, ``a - 1`` from ``edges[1]`` and ``a`` from ``edges[2]``.
    edges: Tensor


def _intervals_of(pos: Tensor, pos_mask: Tensor, tau: float, on_host: bool) -> _Intervals:
    """Cut the line at the (L, P) positives."""
    s = torch.where(pos_mask, clamp_infinite(pos.double()), torch.inf)
    margin = s.new_full((), tau)
    ordered = pad(s.sort(1).values, (0, 1), value=torch.inf)
    # The median, not the mean: one huge score must not cost the others their digits.
    middle = (pos_mask.sum(1, keepdim=True) - 1).clamp(min=0) // 2
    centre = ordered.gather(1, middle)
    centre = torch.where(centre.isinf(), 0, centre)
    thresholds = torch.cat([s - tau, s], 1).sort(1).values
    # By one formula that keeps the order, so that anchors ascend as the thresholds do.
    anchors = ((thresholds - centre) / tau).ceil() - 1
    p = torch.where(pos_mask, (s - centre) / tau, 0)
    top = p.ceil() - 1
    if on_host and (thresholds.isinf() | (anchors.abs() <= _NEAR)).all():
        anchors = torch.zeros_like(anchors)
        top = torch.zeros_like(top)
    # The interval just above each threshold.
    low = torch.searchsorted(thresholds, s - tau, right=True)
    high = torch.searchsorted(thresholds, s, right=True)
    middle = torch.searchsorted(anchors, torch.cat([top - 1, top], 1)).chunk(2, 1)
    edges = torch.stack([low, *(x.maximum(low).minimum(high) for x in middle), high])
    depth = torch.zeros_like(pad(anchors, (0, 1)))
    depth.scatter_add_(1, low, pos_mask.double()).scatter_add_(1, high, -pos_mask.double())
    covered = depth.cumsum(1) > 0.5
    # Elsewhere an interval may be wide: its upper end is no anchor for what lies in it.
    anchors = torch.where(covered, pad(anchors, (0, 1)), 0)
    return _Intervals(margin, thresholds, centre, covered, anchors, p, 1 - p + top, edges)


def _blocks(scores: Tensor, on_host: bool) -> list[tuple[slice, slice]]:
    """Rows and columns of blocks of (L, N) scores."""
    lists, width = scores.shape
    size = _CACHED_BLOCK if on_host else max(_BLOCK // max(lists, 1), 1)
    columns = column_blocks(width, size, on_host)
    rows = [slice(None)]
    if on_host:
        rows = column_blocks(lists, max(_CACHED_BLOCK // max(width, 1), 1), True)
    return [(row, column) for row in rows for column in columns]


def _look_up(table: Tensor, places: Tensor) -> Tensor:
    """(R, n) entries of the (R, K) table."""
    if len(table) == 1:  # faster
        return table[0].index_select(0, places[0].int()).unsqueeze(0)
    return table.gather(1, places.long())


class Places:
    """Counts, for each score, the (L, T) ascending thresholds of its list strictly below it.

    ``width`` is how many scores of each list there are: a grid pays for many.
    """

    def __init__(self, thresholds: Tensor, width: int, on_host: bool) -> None:
        self.thresholds = thresholds
        self.width = width
        self.has_grid = on_host and width >= _GRID_SCORES and thresholds.size(1) > 0
        self.rows = None

    def __call__(self, rows: slice, scores: Tensor, exact: Tensor, out: Tensor) -> None:
        """Write the counts of (R, n) scores, a block, to contiguous int32; NaN is above all.

        ``exact`` are the scores in float64, within the limit.
        """
        thresholds = self.thresholds[rows]
        if not self.has_grid:
            out.copy_(torch.searchsorted(thresholds, exact, out_int32=True))
            return
        if rows != self.rows:
            self._build_grid(thresholds, scores.dtype)
            self.rows = rows
        found = out.view(-1)
        torch.index_select(self.table, 0, self._cell(scores).view(-1), out=found)
        # Several times faster than nonzero() where there are few.
        crowded = np.flatnonzero(found.numpy() < 0)
        ends = np.arange(1, len(scores)) * scores.size(1)
        for row, places in enumerate(np.split(crowded, np.searchsorted(crowded, ends))):
            places = torch.from_numpy(places)
            searched = exact.view(-1).index_select(0, places)
            searched = torch.searchsorted(thresholds[row], searched, out_int32=True)
            found.index_copy_(0, places, searched)
        # The one threshold of the cell, or the next one, which is above.
        place = out + self.first_end if len(scores) > 1 else out
        out += exact > self.ends.index_select(0, place.view(-1)).view(scores.shape)

    def _build_grid(self, thresholds: Tensor, dtype: torch.dtype) -> None:
        lists, count = thresholds.shape
        cells = min(_CELLS_PER_THRESHOLD * count, self.width // 4)
        cells = min(max(cells, _LEAST_CELLS), _MOST_CELLS)
        # Padding, +inf at the end, is above all scores and needs no cell.
        low = thresholds[:, :1].nan_to_num(0, 0, 0)
        width = torch.where(thresholds.isfinite(), thresholds, low).amax(1, keepdim=True) - low
        # Equal thresholds leave no width: all scores of their cell are searched.
        scale = torch.where(width > _NO_WIDTH, (cells - 3) / width, 0)
        # Half the memory of float64, and rounding keeps the order.
        dtype = torch.promote_types(dtype, torch.float32)
        self.scale = scale.to(dtype)
        self.offset = (1 - low * scale).to(dtype)
        self.top = cells - 1
        rows = torch.arange(lists, dtype=torch.int32)[:, None]
        self.first_cell = rows * cells
        self.first_end = rows * (count + 1)
        cell = self._cell(thresholds.to(dtype)).view(-1)
        per_cell = torch.bincount(cell, minlength=lists * cells).view(lists, cells)
        # -1 marks a cell of several thresholds, and the highest, where NaN goes.
        table = torch.where(per_cell > 1, -1, per_cell.cumsum(1) - per_cell)
        table[:, -1] = -1
        self.table = table.to(torch.int32).view(-1)
        self.ends = pad(thresholds, (0, 1), value=torch.inf).view(-1)

    def _cell(self, scores: Tensor) -> Tensor:
        """Cell of each score. Rounding keeps the order, so the look-up is exact, not a guess."""
        # Not fused: that would round the last few scores of a tensor in another way.
        cell = (scores * self.scale).add_(self.offset).clamp_(0, self.top)
        cell = cell.nan_to_num_(self.top).to(torch.int32)
        return cell + self.first_cell if len(cell) > 1 else cell


def _moments(
    intervals: _Intervals, neg: Tensor, neg_mask: Tensor | None, on_host: bool
) -> tuple[Tensor, Tensor]:
    """(L, N) intervals of the negatives, and (3, L, K) sums of 1, u and u^2 of each interval.

    Interval 0, which lies below all windows, takes what is left out.
    """
    anchors = intervals.anchors
    # Backward reads these. Half precision is there to save memory: no more than the scores take,
    # where two bytes hold the number of intervals.
    is_short = neg.element_size() == 2 and anchors.size(1) <= 2**15
    places = torch.empty(
        neg.shape, dtype=torch.int16 if is_short else torch.int32, device=neg.device
    )
    found = anchors.new_zeros(3, *anchors.shape)
    has_anchors = not on_host or bool(anchors.any())
    find = Places(intervals.thresholds, neg.size(1), on_host)
    for rows, part in _blocks(neg, on_host):
        scores = neg[rows, part].contiguous()
        t = clamp_infinite(scores.double())
        place = torch.empty_like(t, dtype=torch.int32) if is_short else places[rows, part]
        find(rows, scores, t, place)
        weight = None
        if neg_mask is not None:
            counted = neg_mask[rows, part]
            place *= counted > 0
            weight = counted.double() if counted.is_floating_point() else None
        if is_short:
            places[rows, part] = place
        u = t.sub_(intervals.centre[rows])
        if has_anchors:
            u = u.div_(intervals.tau).sub_(_look_up(anchors[rows], place))
        place = place.long()
        if weight is None:
            found[0, rows].scatter_add_(1, place, u.new_ones(1, 1).expand_as(u))
            found[1, rows].scatter_add_(1, place, u)
            found[2, rows].scatter_add_(1, place, u.square_())
        else:
            found[0, rows].scatter_add_(1, place, weight)
            first = weight * u
            found[1, rows].scatter_add_(1, place, first)
            found[2, rows].scatter_add_(1, place, first.mul_(u))
    if not has_anchors:
        found[1] /= intervals.tau
        found[2] /= intervals.tau**2
    return places, found


def _totals(intervals: _Intervals, moments: Tensor) -> tuple[Tensor, Tensor]:
    """(L, P) sums over the negatives and their slopes by the positives; any number at padding."""
    tau, _, _, covered, anchors, p, q, edges = intervals
    # Below the lowest threshold nothing counts, whatever is in there.
    window = pad(torch.where(covered, moments, 0).cumsum(2), (1, 0))
    window = window.unsqueeze(1).expand(-1, 4, -1, -1)
    number, first, second = window.gather(3, edges.expand(3, -1, -1, -1)).diff(dim=1)
    # In each of the three parts of a window a negative has the term (offset + u)^2.
    offset = q + torch.arange(-2, 1, device=q.device)[:, None, None]
    total = (second + 2 * offset * first + offset.square() * number).sum(0)
    slope = (first + offset * number).sum(0)
    # Above it 1 + 2 (y - p). Summed from the top, so that the few negatives above a high positive
    # are not the difference of two large sums.
    above = torch.stack([moments[0], moments[1] + anchors * moments[0]])
    above = above.flip(2).cumsum(2).flip(2)
    number, y = above.gather(2, edges[3].expand(2, -1, -1))
    return total + number * (1 - 2 * p) + 2 * y, -2 / tau * (slope + number)


def _coefficients(intervals: _Intervals, grad: Tensor) -> tuple[Tensor, Tensor]:
    """(L, K) a and b of the gradient ``a + b (t - centre)`` of a negative t, by its interval.

    ``grad`` is the (L, P) gradient of the sums, 0 at padding.
    """
    tau, _, _, covered, anchors, _, q, edges = intervals
    by_y = torch.zeros_like(anchors)
    by_y.scatter_add_(1, edges[0], grad).scatter_add_(1, edges[3], -grad)
    constant = torch.zeros_like(anchors)
    steps = torch.cat([grad * (q - 2), grad, grad, grad * (1 - q)], 1)
    constant.scatter_add_(1, torch.cat(edges.unbind(), 1), steps)
    # Outside all windows the slope is 0, not what rounding left of it.
    by_y = torch.where(covered, by_y.cumsum(1), 0)
    constant = constant.cumsum(1) - by_y * anchors
    return 2 / tau * constant, 2 / tau**2 * by_y


def _interval_sums(surrogate: Surrogate, pairs: Pairs, **_) -> Sums:
    """See :func:`mmrank.losses.pairs_smooth.matrix_sums`; values and slopes come together."""
    pos, pos_mask, neg, neg_mask, on_host = pairs
    # NaN has no place on the line: it stays out, and makes NaN of its own sum and, as in the
    # matrix, of the gradient of every negative of its list.
    nan = torch.where(pos.isnan() & pos_mask, torch.nan, 0.0)
    intervals = _intervals_of(pos, pos_mask & ~pos.isnan(), surrogate.tau, on_host)
    places, sums = _moments(intervals, neg, neg_mask, on_host)
    total, slope = _totals(intervals, sums)
    return total + nan, slope + nan, (places, nan, *intervals)


def _interval_gradient(
    surrogate: Surrogate, grad: Tensor, pairs: Pairs, places: Tensor, nan: Tensor, *saved: Tensor
) -> Tensor:
    """See :func:`mmrank.losses.pairs_smooth.matrix_gradient`."""
    _, _, neg, neg_mask, on_host = pairs
    intervals = _Intervals(*saved)
    constant, by_y = _coefficients(intervals, grad)
    constant += nan.sum(1, keepdim=True)
    out = torch.empty_like(neg, memory_format=torch.contiguous_format)
    for rows, part in _blocks(neg, on_host):
        place = places[rows, part]
        # What is left out may be NaN: its slope is 0, and 0 * NaN is not.
        slope = clamp_infinite(neg[rows, part].double()).nan_to_num_(0)
        slope -= intervals.centre[rows]
        slope *= _look_up(by_y[rows], place)
        slope += _look_up(constant[rows], place)
        if neg_mask is not None and neg_mask.is_floating_point():
            slope *= neg_mask[rows, part]
        out[rows, part] = slope
    return out


_INTERVALS = Way(_interval_sums, _interval_gradient)


def count_above(
    pairs: Pairs, delta: float, group=None
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """(L, P) float64 ``sum_j c_j H(t_j - s_i)``, 0 at padding, and a function that spreads weights.

    c are 1, or the weights of the negatives, see :func:`pairwise_surrogate_sum`. The function gives
    (L, N) ``c_j sum_i w_i H(t_j - s_i)``, at least float32, of (L, P) weights w, 0 at padding.
    The step ``H(x) = clamp(x/(2 delta) + 1/2, 0, 1)`` is, up to a factor and a shift, the slope of
    the one-sided Huber of margin ``2 delta``: ``H(t - s) = -delta l'(s + delta - t)``.
    """
    surrogate = OneSidedHuber(2 * delta)
    pairs = pairs._replace(pos=pairs.pos.double() + delta)
    way = surrogate.way(pairs.pos_mask, pairs.neg.size(1), pairs.on_host)
    _, slope, saved = way.sums(surrogate, pairs, values=False)
    count = -delta * slope
    if group is not None:
        dist.all_reduce(count, group=group)

    def spread(weight: Tensor) -> Tensor:
        exact = pairs._replace(neg=at_least_float32(pairs.neg))
        return way.gradient(surrogate, delta * weight, exact, *saved)

    # Rounding may leave -1e-17 where the count is 0.
    return torch.where(pairs.pos_mask, count.clamp(min=0), 0), spread


class _GivenGradient(Function):
    @staticmethod
    def forward(ctx, value, *scores_and_grads):
        ctx.save_for_backward(*scores_and_grads)
        return value.clone()

    @staticmethod
    @once_differentiable('A ranking loss whose gradient is a rule')
    def backward(ctx, grad):
        saved = ctx.saved_tensors
        number = len(saved) // 2
        found = []
        for scores, own in zip(saved[:number], saved[number:]):
            # Not in float64 where the gradient is not: that takes twice as much.
            found.append((grad.to(own.dtype).unsqueeze(1) * own).to(scores.dtype))
        return (None, *found, *[None] * number)


def given_gradient(value: Tensor, *scores_and_grads: tuple[Tensor, Tensor]) -> Tensor:
    """(L,) ``value``, whose gradient by each of the (L, N) scores is the tensor beside it."""
    scores, grads = zip(*scores_and_grads)
    return _GivenGradient.apply(value, *scores, *grads)
