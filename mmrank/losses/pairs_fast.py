"""What makes the intervals of ``pairs.py`` fast on a CPU: blocks in the cache, places by a grid.

A binary search costs a CPU one mispredicted branch per halving and score: 90 ms for 3.5 million
scores and 1,500 thresholds. A uniform grid over the thresholds answers a score with one look-up
and, as its cell may hold a threshold, one comparison. Only the scores of a cell that holds several
are searched.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from mmrank.autograd import can_sync
from mmrank.tensors import column_blocks

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


def blocks(scores: Tensor) -> list[tuple[slice, slice]]:
    """Rows and columns of blocks of (L, N) scores."""
    lists, width = scores.shape
    if not can_sync(scores):
        size = max(_BLOCK // max(lists, 1), 1)
        return [(slice(None), part) for part in column_blocks(width, size)]
    every_row = column_blocks(lists, max(_CACHED_BLOCK // max(width, 1), 1))
    return [(rows, part) for rows in every_row for part in column_blocks(width, _CACHED_BLOCK)]


def look_up(table: Tensor, places: Tensor) -> Tensor:
    """(R, n) entries of the (R, K) table."""
    if len(table) == 1:  # faster
        return table[0].index_select(0, places[0].int()).unsqueeze(0)
    return table.gather(1, places.long())


class Places:
    """Counts, for each score, the (L, T) ascending thresholds of its list strictly below it.

    ``width`` is how many scores of each list there are: a grid pays for many.
    """

    def __init__(self, thresholds: Tensor, width: int) -> None:
        self.thresholds = thresholds
        self.width = width
        self.has_grid = can_sync(thresholds) and width >= _GRID_SCORES and thresholds.size(1) > 0
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
