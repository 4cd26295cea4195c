"""The rank of every positive of every query, a block of scores at a time.

A panel of queries goes through the gallery in blocks: first through the blocks of its own classes,
for the scores of the positives, then through all, to count the scores at or above each. A gallery
in memory is one block, and one product serves both. Both passes compare scores of equal products,
so rounding cannot make them disagree. Ranks of a process group take whole panels in turn: the
products of a panel do not depend on how many processes there are, and so no figure does.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from .counting import BYTES_PER_SCORE, count_rows_at_or_above
from .input import GALLERY_TILE, QUERY_TILE, RetrievalSets, whole_tiles

# A product of a whole gallery gains nothing from more queries at once, nor one of a block from more
# queries or gallery rows.
_MOST_QUERIES = 480
_MOST_STREAMED = 2**14
_MOST_ROWS = 2**12
# Scores that are ranked at once: so many that the calls cost little compared with the counting,
# which goes through fewer on its own.
_TILE = {'cpu': 2**21, 'other': 2**24}
# The width of a panel is a multiple of the first. So many numbers lie between its rows: with a
# multiple of 4 KiB the cache would keep few of them.
_ROW_MULTIPLE = 1024
_GAP = 16
# Temporary tensors of the ranks, per positive.
_BYTES_PER_POSITIVE = 128

#: Takes the positives' scores (B, P), descending, the padding last, the number of positives (B,)
#: and the gallery scores at or above each positive (B, P); returns tensors of B rows.
Reduce = Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]]


class _RowWorkers:
    """Works on tiles of rows with as many threads as torch uses.

    A tile that fits the cache takes tens of microseconds per operation: torch's own threads, which
    wait for each other after each, would spend more time waiting than working, above all on a busy
    machine.
    """

    def __init__(self, device: torch.device) -> None:
        self.count = torch.get_num_threads() if device.type == 'cpu' else 1
        self._pool = None

    def __enter__(self) -> '_RowWorkers':
        if self.count > 1:
            self._pool = ThreadPoolExecutor(self.count, 'mmrank-rows', torch.set_num_threads, (1,))
        return self

    def __exit__(self, *exception) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
            # The workers' setting also holds for threads yet to come.
            torch.set_num_threads(self.count)

    def map(self, function: Callable, *arguments: Iterable) -> Iterator:
        return (map if self._pool is None else self._pool.map)(function, *arguments)


def count_positives(sets: RetrievalSets) -> Tensor:
    """Positives of each query, (Q,) int64, without what is left out."""
    return sets.size if sets.left_out is None else sets.size - sets.left_out[:, 1]


def _most_left_out(sets: RetrievalSets) -> int:
    """How many gallery samples a query leaves out at most."""
    return 0 if sets.left_out is None else int(sets.left_out[:, 1].max())


def rank_positives(
    sets: RetrievalSets,
    reduce: Reduce,
    results: Sequence[Tensor],
    *,
    memory_limit: int,
    bytes_per_query: int = 0,
    best_only: bool = False,
    progress: Callable[[int, int], None] | None = None,
    group: 'dist.ProcessGroup | None' = None,
) -> None:
    """Fill in the ``results`` that follow from the ranks of each query's positives.

    They are tensors of Q rows, zero, and stay so for queries without a positive. ``reduce`` needs
    ``bytes_per_query`` plus a few values per positive. With ``best_only`` it gets (B, 1) numbers
    of scores, of the best positive alone. Other arguments: see ``retrieval_metrics``.
    """
    positives = count_positives(sets)
    if sets.order is None:
        # Queries with equally many positives share a panel, so that little of its table of
        # positives is padding.
        rows = chosen = positives.argsort(descending=True, stable=True)[: (positives > 0).sum()]
    else:
        rows = (positives[sets.order] > 0).nonzero()[:, 0]
        chosen = sets.order[rows]
    if len(chosen) == 0:
        return
    sizes = positives[chosen].cpu()
    with _RowWorkers(sets.queries.device) as workers:
        plan = plan_panels if sets.order is None else plan_blocks
        shape, tile, panels = plan(sets, sizes, memory_limit, workers.count, bytes_per_query)
        # One buffer serves all panels: fresh pages cost the system as much as the ranks.
        buffer = sets.queries.new_empty(shape[0], shape[1] + _GAP)[:, : shape[1]]
        if group is not None:
            panels = panels[dist.get_rank(group) :: dist.get_world_size(group)]
        spare = _most_left_out(sets)
        done = 0
        total = sum(end - begin for begin, end in panels)
        for begin, end in panels:
            part = slice(begin, end)
            scores = _PanelScores(sets, rows[part], chosen[part], buffer, spare)
            tiles = [
                _Tile(sets, x, int(most.max()), spare, best_only)
                for x, most in zip(chosen[part].split(tile), sizes[part].split(tile))
            ]
            _rank(sets, chosen[part], tiles, scores, tile, shape[1], workers)
            for one, values in zip(tiles, workers.map(lambda x: reduce(*x.ranks()), tiles)):
                for whole, of_tile in zip(results, values):
                    whole[one.chosen] = of_tile
            done += end - begin
            if progress is not None:
                progress(done, total)
    if group is not None:
        join_results(results, group)


class _PanelScores:
    """Products of some queries with blocks of the gallery, the last one kept."""

    def __init__(
        self, sets: RetrievalSets, rows: Tensor, chosen: Tensor, buffer: Tensor, spare: int
    ) -> None:
        self._sets = sets
        self._buffer = buffer
        self._count = len(rows)
        # Fewer than whole tiles where there is no memory.
        filled = min(whole_tiles(len(rows), QUERY_TILE), len(buffer))
        self._queries = sets.queries[pad(rows, (0, filled - len(rows)))]
        self._left_out = None
        if sets.left_out is not None:
            first, count = sets.left_out[chosen].unbind(1)
            place = torch.arange(spare, device=first.device)
            # -1 behind the last one.
            column = first[:, None] + place
            self._left_out = column.masked_fill(place >= count[:, None], -1)
        self._first = None

    def of_block(self, first: int) -> Tensor:
        """Scores of the gallery rows from ``first``, -inf where there is nothing to rank."""
        gallery = self._sets.gallery[first : first + self._buffer.size(1)]
        out = self._buffer[: len(self._queries), : len(gallery)]
        if first != self._first:
            torch.mm(self._queries, gallery.T, out=out)
            out[:, max(self._sets.num_rows - first, 0) :] = float('-inf')
            if self._left_out is not None:
                column = self._left_out - first
                here = (self._left_out >= first) & (column < len(gallery))
                row, place = here.nonzero(as_tuple=True)
                out[row, column[row, place]] = float('-inf')
            self._first = first
        return out[: self._count]


class _Tile:
    """The positives of some queries of a panel, ranked by one worker."""

    def __init__(
        self, sets: RetrievalSets, chosen: Tensor, most: int, spare: int, best_only: bool
    ) -> None:
        self.chosen = chosen
        self._most = most
        self._best_only = best_only
        self._begin = sets.begin[chosen]
        self._size = sets.size[chosen]
        self._sizes = count_positives(sets)[chosen]
        self._found = sets.queries.new_full((len(chosen), most + spare), float('-inf'))
        self._counts = torch.empty(0)  # (n, P), once the positives are sorted

    def take_positives(self, first: int, scores: Tensor) -> None:
        """Keep the scores of the positives that are in a block."""
        place = torch.arange(self._found.size(1), device=scores.device)
        column = self._begin[:, None] + place - first
        here = (column >= 0) & (column < scores.size(1)) & (place < self._size[:, None])
        found = scores.gather(1, column.clamp_(0, scores.size(1) - 1))
        # Not in place: a worker may not change tensors of the caller's inference mode.
        self._found = torch.where(here, found, self._found)

    def sort_positives(self) -> None:
        """Put them in descending order, what is left out after them, before the padding."""
        found = self._found.sort(1, descending=True).values[:, : self._most].contiguous()
        real = torch.arange(self._most, device=found.device) < self._sizes[:, None]
        thresholds = found.masked_fill(~real, float('inf'))
        self._found = found
        self._thresholds = thresholds[:, :1] if self._best_only else thresholds
        self._counts = torch.zeros_like(self._thresholds, dtype=torch.int64)

    def count(self, scores: Tensor) -> None:
        """Add the scores of a block at or above each positive."""
        self._counts = self._counts + count_rows_at_or_above(scores, self._thresholds)

    def ranks(self) -> tuple[Tensor, Tensor, Tensor]:
        """Arguments of ``reduce``."""
        return self._found, self._sizes, self._counts


def _rank(
    sets: RetrievalSets,
    chosen: Tensor,
    tiles: list[_Tile],
    scores: _PanelScores,
    tile: int,
    width: int,
    workers: _RowWorkers,
) -> None:
    """Rank the positives of a panel, in blocks of ``width`` gallery rows."""
    begin = sets.begin[chosen]
    first_of_classes = int(begin.min()) // width * width
    for first in range(first_of_classes, int((begin + sets.size[chosen]).max()), width):
        parts = scores.of_block(first).split(tile)
        list(workers.map(_Tile.take_positives, tiles, repeat(first), parts))
    list(workers.map(_Tile.sort_positives, tiles))
    for first in range(0, sets.num_rows, width):
        list(workers.map(_Tile.count, tiles, scores.of_block(first).split(tile)))


def plan_panels(
    sets: RetrievalSets, sizes: Tensor, memory_limit: int, workers: int, bytes_per_query: int = 0
) -> tuple[tuple[int, int], int, list[tuple[int, int]]]:
    """Plan panels with a whole gallery for queries with (n,) positives, in descending order.

    Rows and columns of the buffer of scores, queries of a tile, which a worker ranks at once, and
    the first query of each panel and that behind its last.
    """
    total = len(sizes)
    most = int(sizes[0]) + max(_most_left_out(sets), 1)
    width = whole_tiles(len(sets.gallery), _ROW_MULTIPLE)
    item = sets.queries.element_size()
    panel_row = (width + _GAP) * item + (item + 8) * most
    tile_row = BYTES_PER_SCORE * width + bytes_per_query + _BYTES_PER_POSITIVE * most
    tile_row *= workers
    if memory_limit < panel_row + tile_row:
        raise ValueError(
            f'memory_limit={memory_limit} is too small: one query against {sets.num_rows} gallery '
            f'samples needs {panel_row + tile_row} bytes on {workers} threads'
        )
    tile = _TILE.get(sets.queries.device.type, _TILE['other']) // width
    # Every worker gets several tiles of a panel.
    tile = min(tile, _MOST_QUERIES // (4 * workers) if workers > 1 else tile)
    tile = max(min(tile, memory_limit // 2 // tile_row), 1)
    rows = (memory_limit - tile * tile_row) // panel_row
    rows = max(min(rows, _MOST_QUERIES), 1)
    rows -= rows % QUERY_TILE if rows > QUERY_TILE else 0
    panels = [(begin, min(begin + rows, total)) for begin in range(0, total, rows)]
    return (min(rows, whole_tiles(total, QUERY_TILE)), width), tile, panels


def plan_blocks(
    sets: RetrievalSets, sizes: Tensor, memory_limit: int, workers: int, bytes_per_query: int = 0
) -> tuple[tuple[int, int], int, list[tuple[int, int]]]:
    """Plan panels that go through the blocks of a gallery on disk; see :func:`plan_panels`.

    A block, and the counting in it, take at most an eighth of the memory each, a panel with its
    tables of positives half.
    """
    item = sets.queries.element_size()
    part = memory_limit // 8
    row_bytes = item * sets.queries.size(1)

    def too_small(least: int) -> ValueError:
        return ValueError(
            f'memory_limit={memory_limit} is too small: one query against {sets.num_rows} stored '
            f'gallery samples needs about {least} bytes'
        )

    of_row = max(row_bytes, BYTES_PER_SCORE * workers)
    block = min(part // of_row, _MOST_ROWS)
    block -= block % GALLERY_TILE
    if block == 0:
        raise too_small(8 * of_row * GALLERY_TILE)
    block = min(block, whole_tiles(sets.num_rows, GALLERY_TILE))
    panels = []
    begin = 0
    spare = max(_most_left_out(sets), 1)
    while begin < len(sizes):
        widest = sizes[begin : begin + _MOST_STREAMED].cummax(0).values + spare
        rows = torch.arange(1, len(widest) + 1)
        needed = rows * (_BYTES_PER_POSITIVE * widest + bytes_per_query)
        needed += whole_tiles(rows, QUERY_TILE) * (block * item + 2 * row_bytes)
        count = int((needed <= memory_limit // 2).sum())
        if count == 0:
            raise too_small(2 * int(needed[0]))
        panels.append((begin, begin + count))
        begin += count
    rows = whole_tiles(max(end - begin for begin, end in panels), QUERY_TILE)
    return (rows, block), max(part // (BYTES_PER_SCORE * workers * block), 1), panels


def join_results(results: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Add up; exact, since every row is zero on all ranks but one."""
    # NCCL knows no CPU tensors, and gloo not all operations on a GPU.
    place = {'nccl': 'cuda', 'gloo': 'cpu'}.get(dist.get_backend(group))
    for result in results:
        shared = result if place is None else result.to(place)
        dist.all_reduce(shared, group=group)
        result.copy_(shared)
