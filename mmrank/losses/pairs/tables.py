"""Tables of the exact near-linear evaluation of the pairwise surrogate sum.

With ``y = score / tau`` the one-sided Huber surrogate of a positive ``p`` and a negative ``y`` is
``(1 - p + y)^2`` in the window ``p - 1 < y <= p``,
``1 + 2 (y - p)`` above it and 0 below. Between two neighbours of the sorted thresholds ``{p, p -
1}`` a negative is therefore in one and the same branch for every positive, and the sum over all
negatives needs only, per interval, their count and the first two moments.

Squares of large scores would cancel, so each interval inside a window has an anchor, a whole number
``a`` within one unit of all that lies in the interval, and the moments are of ``u = y - a``,
which is in ``[-1, 1]``.

:class:`ScoreBinner` finds the intervals. ``torch.bucketize`` costs one mispredicted branch per
halving and score on a CPU: 90 ms for 3.5 M scores and 1,500 thresholds, six times a whole binary
cross-entropy step. A uniform grid over the thresholds answers a score with one table look-up and,
as its cell may hold a threshold, one comparison. Only the scores of a cell that holds several are
compared with those one after the other, or searched where it holds many.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mmrank.tensors import clamp_infinite

# Scores per pass: few enough that the temporaries of a pass stay in cache, many enough that the
# calls cost little.
CHUNK = 2**17
# Grid cells per threshold, and their least and largest number: the share of scores to be searched
# falls with the first, the table leaves the cache
# beyond the last.
_CELLS_PER_THRESHOLD = 16
_MIN_CELLS = 2**10
_MAX_CELLS = 2**20
# Thresholds so close that cells per unit of score might be infinite.
_NO_WIDTH = 1e-30
# Thresholds of a cell up to which comparing is cheaper than searching.
_MAX_COMPARISONS = 8
# Below this many scores, of a list and in all, the search itself is cheaper than building the grid.
_MIN_WIDTH_FOR_GRID = 4096
_MIN_SCORES_FOR_GRID = 65536
# Anchors up to this far from the centre are all moved to it, which saves a look-up for each score
# and at most two decimal digits of float64.
_NEAR = 8.0


class ScoreBinner:
    """Counts, for each score, the (R, T) ascending thresholds of its list strictly below it.

    How many scores of each list will be binned decides whether a grid pays.
    """

    def __init__(self, thresholds: Tensor, num_scores: int, is_finite: bool = False) -> None:
        self.thresholds = thresholds
        self.is_finite = is_finite
        self.use_grid = (
            thresholds.device.type == 'cpu'
            and num_scores >= _MIN_WIDTH_FOR_GRID
            and len(thresholds) * num_scores >= _MIN_SCORES_FOR_GRID
        )
        if self.use_grid:
            self._build_grid(num_scores)

    def _build_grid(self, num_scores: int) -> None:
        thresholds = self.thresholds
        lists, count = thresholds.shape
        wanted = min(_CELLS_PER_THRESHOLD * count, max(num_scores // 4, 1))
        cells = 1 << max(wanted - 1, 1).bit_length()
        self.num_cells = min(max(cells, _MIN_CELLS), _MAX_CELLS)
        # Padding, +inf at the end, is above all scores and needs no cell.
        used = thresholds.isfinite()
        self.low = thresholds[:, :1].nan_to_num(0.0, 0.0, 0.0)
        width = torch.where(used, thresholds, self.low).amax(1, True)
        width -= self.low
        # Equal thresholds leave no width: all scores of one cell are searched.
        self.scale = torch.where(width > _NO_WIDTH, (self.num_cells - 3) / width, 0)
        # Where the table and the thresholds of each list begin.
        rows = torch.arange(lists, dtype=torch.int32)[:, None]
        self.first_cell = rows * self.num_cells
        self.first_end = rows * (count + 1)
        cell = self._cell(torch.where(used, thresholds, self.low))[used]
        per_cell = torch.bincount(cell, minlength=lists * self.num_cells)
        per_cell = per_cell.view(lists, self.num_cells)
        below = per_cell.cumsum(1) - per_cell
        # A cell that holds several thresholds is marked by a negative entry, as is the highest one:
        # NaN, which is above nothing, goes there.
        several = per_cell > 1
        several[:, -1] |= per_cell[:, -1] > 0
        table = torch.where(several, -1 - below, below)
        self.table = table.to(torch.int32).view(-1)
        top = bool(per_cell[:, -1].any())
        most = self.num_cells if top else int(per_cell.max())
        self.comparisons = most if most <= _MAX_COMPARISONS else None
        end = thresholds.new_full((lists, 1), torch.inf)
        self.ends = torch.cat([thresholds, end], 1).view(-1)
        # The search of open scores serves one list.
        self.use_grid = lists == 1 or self.comparisons is not None

    def _cell(self, scores: Tensor) -> Tensor:
        """Grid cell of each score, by operations that are monotone.

        Rounding keeps the order, so a score in a lower (higher) cell than a threshold is below
        (above) it: the look-up is exact, not a guess.
        """
        low = self.low
        scale = self.scale
        if scores.dim() == 1:
            # As numbers: a broadcast tensor is slower.
            low = low[0, 0]
            scale = scale[0, 0]
        # Not by one fused operation: it would round the last few scores of
        # a tensor in another way than those before.
        cell = torch.sub(scores, low).mul_(scale).add_(1)
        cell.clamp_(0, self.num_cells - 1)
        if not self.is_finite:
            cell.nan_to_num_(nan=self.num_cells - 1)
        return self._from(self.first_cell, cell.to(torch.int32))

    def _from(self, first: Tensor, places: Tensor) -> Tensor:
        """Places within each list as places among all lists."""
        return places if len(first) == 1 else places + first

    def __call__(self, scores: Tensor, out: Tensor) -> None:
        """Bin (R, n) scores of the thresholds' dtype, NaN at the top, into contiguous int32."""
        if not self.use_grid:
            out.copy_(torch.searchsorted(self.thresholds, scores, out_int32=True))
            return
        if len(out) == 1:
            scores = scores[0]
            out = out[0]
        # No name for the cells: the next ones then take their memory.
        torch.index_select(self.table, 0, self._cell(scores).view(-1), out=out.view(-1))
        self._search_crowded_cells(scores, out)
        # The one threshold of the cell, or the next one, which is above.
        place = self._from(self.first_end, out).view(-1)
        end = self.ends.index_select(0, place).view(out.shape)
        is_above = torch.empty_like(out)
        out += torch.gt(scores, end, out=is_above)

    def _search_crowded_cells(self, scores: Tensor, out: Tensor) -> None:
        """Replace the negative entries, scores in a cell of several."""
        flat = out.view(-1)
        # Several times faster than nonzero() where there are few.
        open_ = torch.from_numpy(np.flatnonzero(flat.numpy() < 0))
        scores = scores.reshape(-1).index_select(0, open_)
        if self.comparisons is None:
            found = torch.bucketize(scores, self.thresholds[0], out_int32=True)
        else:
            found = -1 - flat.index_select(0, open_)
            first = None
            if out.dim() == 2:
                # Places among the thresholds of all lists.
                first = self.first_end.view(-1)[open_ // out.size(1)]
                found += first
            for _ in range(self.comparisons):
                found += scores > self.ends.index_select(0, found)
            if first is not None:
                found -= first
        flat.index_copy_(0, open_, found)


# A window of one unit covers intervals of at most three neighbouring anchors.
_ANCHORS_PER_WINDOW = 3


def round_down(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Largest number of ``dtype`` that is <= the float64 value.

    ``t > v`` and ``t > round_down(v)`` then agree for every ``t`` of
    ``dtype``: comparing in float32 loses nothing.
    """
    rounded = values.to(dtype)
    low = torch.full_like(rounded, float('-inf'))
    return torch.where(rounded.double() > values, torch.nextafter(rounded, low), rounded)


@dataclass
class PairwiseTables:
    """Everything that depends on the positives alone.

    L lists, P positives each (padded), T = 2P thresholds, K = T + 1 intervals; interval k holds the
    scores above threshold k - 1 and not above threshold k.
    """

    #: (L, T) sorted, in the dtype the negatives are compared in; padding is +inf at the end.
    thresholds: Tensor
    centre: Tensor  # (L, 1) float64 origin of y in units of the scores
    covered: Tensor  # (L, K) bool, True where some positive's window lies
    #: (L, K) float64 whole numbers, 0 where not covered; on a CPU 0 if all are near the centre.
    anchors: Tensor
    p: Tensor  # (L, P) float64 positives in units of tau around the centre
    q: Tensor  # (L, P) float64 ``1 - p + top anchor of the window``
    #: (L, P) indices: the intervals of positive i's window are ``edges[0] <= k < edges[3]``;
    #: ``edges[1]`` and ``edges[2]`` are where the anchor is first ``top - 1`` and ``top``.
    edges: tuple[Tensor, Tensor, Tensor, Tensor]

    @property
    def has_anchors(self) -> bool:
        """Whether an anchor is not 0; on a GPU it is not looked at."""
        return self.anchors.device.type != 'cpu' or bool(self.anchors.any())

    @classmethod
    def build(
        cls, pos: Tensor, pos_mask: Tensor, tau: float, dtype: torch.dtype
    ) -> 'PairwiseTables':
        """Sort the thresholds of (L, P) positives, P >= 1, in the dtype of the comparison."""
        s = clamp_infinite(pos.double())
        s = torch.where(pos_mask, s, float('inf'))
        # The median, not the mean: one huge score must not cost the others their digits.
        middle = (pos_mask.sum(1, keepdim=True) - 1).clamp(min=0) // 2
        centre = s.sort(1).values.gather(1, middle)
        centre = torch.where(centre.isinf(), 0, centre)
        if s.device.type == 'cpu':
            # Zero, where it serves as well, need not be subtracted.
            highest = torch.where(pos_mask, s, 0).abs().amax()
            centre = torch.where(highest <= (_NEAR - 2) * tau, 0, centre)
        both = torch.cat([s - tau, s], dim=1).sort(1).values
        thresholds = round_down(both, dtype)

        # Anchors come from the exact thresholds by one monotone formula, so that their order can
        # never disagree with the thresholds' order.
        anchors = ((both - centre) / tau).ceil() - 1
        p = torch.where(pos_mask, (s - centre) / tau, 0)
        top = p.ceil() - 1

        def after(values: Tensor) -> Tensor:
            """Interval just above each value, which is a threshold."""
            return torch.searchsorted(thresholds, round_down(values, dtype), right=True)

        low = after(s - tau)
        high = after(s)
        is_near = anchors.device.type == 'cpu' and bool(
            torch.where(both.isinf(), 0, anchors).abs().max() <= _NEAR
        )
        if is_near:
            # One part of the window, with the centre as its anchor.
            edges = low, low, low, high
            anchors = torch.zeros_like(anchors)
            top = torch.zeros_like(top)
        else:
            mid1 = torch.searchsorted(anchors, top - 1).maximum(low).minimum(high)
            mid2 = torch.searchsorted(anchors, top).maximum(low).minimum(high)
            edges = low, mid1, mid2, high

        depth = torch.nn.functional.pad(torch.zeros_like(anchors), (0, 1))
        ones = pos_mask.double()
        depth.scatter_add_(1, low, ones).scatter_add_(1, high, -ones)
        covered = depth.cumsum(1) > 0.5
        # Outside all windows an interval may be wide: its upper end is not an anchor for what lies
        # in it, the centre is.
        anchors = torch.nn.functional.pad(anchors, (0, 1))
        anchors = torch.where(covered, anchors, 0)
        return cls(thresholds, centre, covered, anchors, p, 1 - p + top, edges)

    def window_parts(self):
        """Yield (begin, end, offset) of the parts of each window.

        Inside part g a negative's term is ``(offset + u)^2``.
        """
        for part in range(_ANCHORS_PER_WINDOW):
            shift = part - (_ANCHORS_PER_WINDOW - 1)
            yield self.edges[part], self.edges[part + 1], self.q + shift

    def reduce(self, moments: Tensor) -> tuple[Tensor, Tensor]:
        """(L, P) sums over the negatives and their derivatives by p, undefined at padding.

        ``moments`` are (3, L, K) float64: count, sum of u and of u^2 of each interval.
        """
        count, first, _ = moments
        # Below the lowest threshold nothing counts, whatever is in there.
        window = torch.where(self.covered, moments, 0).cumsum(2)
        window = torch.nn.functional.pad(window, (1, 0))
        total = torch.zeros_like(self.p)
        slope = torch.zeros_like(self.p)
        for begin, end, offset in self.window_parts():
            n = window[0].gather(1, end) - window[0].gather(1, begin)
            u = window[1].gather(1, end) - window[1].gather(1, begin)
            uu = window[2].gather(1, end) - window[2].gather(1, begin)
            total += uu + 2 * offset * u + offset.square() * n
            slope += u + offset * n

        # Summed from the top, so that the few negatives above a high positive are not the
        # difference of two large sums.
        y = first + self.anchors * count
        above = torch.stack([count, y])
        above[..., 0] = 0
        above = above.flip(-1).cumsum(-1).flip(-1)
        n = above[0].gather(1, self.edges[-1])
        y = above[1].gather(1, self.edges[-1])
        total += n * (1 - 2 * self.p) + 2 * y
        slope += n
        return total, -2 * slope

    def slope_coefficients(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """(L, K) ``c0`` and ``c1`` of a negative's gradient, from the ones of the sums.

        The derivative by y of ``sum_i grad_i * l(p_i - y)`` is ``c0 + c1 * y`` in interval k.
        """
        low, mid1, mid2, high = self.edges
        shape = self.anchors
        by_u = torch.zeros_like(shape)
        by_u.scatter_add_(1, low, grad).scatter_add_(1, high, -grad)
        const = torch.zeros_like(shape)
        const.scatter_add_(1, low, grad * (self.q - 2))
        const.scatter_add_(1, mid1, grad).scatter_add_(1, mid2, grad)
        const.scatter_add_(1, high, grad * (1 - self.q))
        # Outside all windows the slope is 0, not what rounding left of it.
        by_u = torch.where(self.covered, by_u.cumsum(1), 0)
        const = const.cumsum(1)
        return 2 * (const - by_u * self.anchors), 2 * by_u
