"""Sums of a surrogate over all pairs of a positive and a negative of a list.

The one-sided Huber l is summed without the pairs. With ``x = s - t`` of a positive s and a negative
t it is ``(1 - x/tau)^2`` in the window ``s - tau < t <= s``, ``1 - 2x/tau`` above it and 0 below.
The thresholds s and ``s - tau`` of all positives cut the line into intervals. Within one of them a
negative is in the same branch for every positive. So its sums need, of each interval, the number of
the negatives, their sum and their sum of squares: O((P + N) log P) time and O(N) memory.

Squares of large scores would cancel. So each interval of a window has an anchor, a whole number of
tau away from a centre, and the moments are of the distance u to it, in units of tau: ``|u| <= 1``.

Other surrogates, and small problems, go over the matrix of pairs: ``pairs_smooth.py``.
"""

from collections.abc import Callable
from dataclasses import astuple
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from mmrank.autograd import Function, can_sync, is_compiling, once_differentiable
from mmrank.tensors import at_least_float32, check_floats, clamp_infinite

from .pairs_fast import Places, blocks, look_up
from .pairs_smooth import OneSidedHuber, Sums, Surrogate, matrix_gradient, matrix_sums

#: Pairs up to which the matrix is faster than the intervals.
DENSE_PAIRS = 2**18
# Positives of a list up to which it is, on a CPU, for any number of pairs: a pair costs 4 ns there,
# a score of the intervals 35 ns.
_FEW_POSITIVES = 8
# On a CPU, anchors up to this far from the centre are all moved to it, which saves a look-up for
# each score and costs at most two decimal digits of float64.
_NEAR = 8.0


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


def _intervals_of(pos: Tensor, pos_mask: Tensor, tau: float) -> _Intervals:
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
    if can_sync(pos) and (thresholds.isinf() | (anchors.abs() <= _NEAR)).all():
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


def moments(intervals: _Intervals, neg: Tensor, neg_mask: Tensor | None) -> tuple[Tensor, Tensor]:
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
    has_anchors = not can_sync(neg) or bool(anchors.any())
    find = Places(intervals.thresholds, neg.size(1))
    for rows, part in blocks(neg):
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
            u = u.div_(intervals.tau).sub_(look_up(anchors[rows], place))
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


def totals(intervals: _Intervals, moments: Tensor) -> tuple[Tensor, Tensor]:
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


def _interval_sums(
    surrogate: Surrogate, pos: Tensor, pos_mask: Tensor, neg: Tensor, neg_mask: Tensor | None, **_
) -> Sums:
    """See :func:`mmrank.losses.pairs_smooth.matrix_sums`; values and slopes come together."""
    # NaN has no place on the line: it stays out, and makes NaN of its own sum and, as in the
    # matrix, of the gradient of every negative of its list.
    nan = torch.where(pos.isnan() & pos_mask, torch.nan, 0.0)
    intervals = _intervals_of(pos, pos_mask & ~pos.isnan(), surrogate.tau)
    places, found = moments(intervals, neg, neg_mask)
    total, slope = totals(intervals, found)
    return total + nan, slope + nan, (places, nan, *intervals)


def _interval_gradient(
    _: Surrogate,
    grad: Tensor,
    neg: Tensor,
    neg_mask: Tensor | None,
    places: Tensor,
    nan: Tensor,
    *saved: Tensor,
) -> Tensor:
    """See :func:`mmrank.losses.pairs_smooth.matrix_gradient`."""
    intervals = _Intervals(*saved)
    constant, by_y = _coefficients(intervals, grad)
    constant += nan.sum(1, keepdim=True)
    out = torch.empty_like(neg, memory_format=torch.contiguous_format)
    for rows, part in blocks(neg):
        place = places[rows, part]
        # What is left out may be NaN: its slope is 0, and 0 * NaN is not.
        slope = clamp_infinite(neg[rows, part].double()).nan_to_num_(0)
        slope -= intervals.centre[rows]
        slope *= look_up(by_y[rows], place)
        slope += look_up(constant[rows], place)
        if neg_mask is not None and neg_mask.is_floating_point():
            slope *= neg_mask[rows, part]
        out[rows, part] = slope
    return out


class _Way(NamedTuple):
    """Two functions that sum a surrogate and give the gradient of the negatives."""

    sums: Callable[..., Sums]
    gradient: Callable[..., Tensor]


_MATRIX = _Way(matrix_sums, matrix_gradient)
_INTERVALS = _Way(_interval_sums, _interval_gradient)


def _fastest_way(surrogate: Surrogate, pos_mask: Tensor, width: int) -> _Way:
    """The way that is fastest for (L, P) positives and ``width`` negatives."""
    # A subclass has other values.
    if type(surrogate) is not OneSidedHuber:
        return _MATRIX
    # The size of a compiled graph is not known.
    if is_compiling():
        return _INTERVALS
    if pos_mask.numel() * width <= DENSE_PAIRS:
        return _MATRIX
    if can_sync(pos_mask) and int(pos_mask.sum()) <= _FEW_POSITIVES * len(pos_mask):
        return _MATRIX
    return _INTERVALS


class _PairSum(Function):
    @staticmethod
    def forward(ctx, pos, neg, pos_mask, neg_mask, surrogate, group):
        way = _fastest_way(surrogate, pos_mask, neg.size(1))
        slopes = is_compiling() or any(ctx.needs_input_grad[:2])
        total, slope, saved = way.sums(surrogate, pos, pos_mask, neg, neg_mask, slopes=slopes)
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
            grad_neg = ctx.way.gradient(ctx.surrogate, grad, neg, neg_mask, *saved)
        return grad_pos, grad_neg, None, None, None, None


def pairwise_surrogate_sum(
    pos: Tensor,
    neg: Tensor,
    surrogate: Surrogate,
    *,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    group=None,
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
    if is_compiling():
        # By texts, which are constants of the graph: torch.compile (2.12) does not trace two
        # functions that share a number.
        texts = [float(x).hex() for x in astuple(surrogate)]
        surrogate = type(surrogate)(*map(float.fromhex, texts))
    return _PairSum.apply(pos, neg, pos_mask, neg_mask, surrogate, group)


def count_above(
    pos: Tensor, pos_mask: Tensor, neg: Tensor, neg_mask: Tensor | None, delta: float, group=None
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """(L, P) float64 ``sum_j c_j H(t_j - s_i)``, 0 at padding, and a function that spreads weights.

    c are 1, or the weights of the negatives, see :func:`pairwise_surrogate_sum`. The function gives
    (L, N) ``c_j sum_i w_i H(t_j - s_i)``, at least float32, of (L, P) weights w, 0 at padding.
    The step ``H(x) = clamp(x/(2 delta) + 1/2, 0, 1)`` is, up to a factor and a shift, the slope of
    the one-sided Huber of margin ``2 delta``: ``H(t - s) = -delta l'(s + delta - t)``.
    """
    surrogate = OneSidedHuber(2 * delta)
    way = _fastest_way(surrogate, pos_mask, neg.size(1))
    shifted = pos.double() + delta
    _, slope, saved = way.sums(surrogate, shifted, pos_mask, neg, neg_mask, values=False)
    count = -delta * slope
    if group is not None:
        dist.all_reduce(count, group=group)

    def spread(weight: Tensor) -> Tensor:
        return way.gradient(surrogate, delta * weight, at_least_float32(neg), neg_mask, *saved)

    # Rounding may leave -1e-17 where the count is 0.
    return torch.where(pos_mask, count.clamp(min=0), 0), spread


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
