"""The rank of every positive of every query, a panel of queries at a time.

One product of a panel with the whole gallery gives the scores of the positives and those that are
counted at or above each, so rounding cannot make them disagree. Ranks of a process group take whole
panels in turn: the products of a panel do not depend on how many processes there are, and so no
figure does.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from .counting import BYTES_PER_SCORE, count_rows_at_or_above
from .input import QUERY_TILE, RetrievalSets, whole_tiles

# A product gains nothing from more queries at once.
_MOST_QUERIES = 480
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
    # Queries with equally many positives share a panel, so that little of its table of positives is
    # padding.
    chosen = positives.argsort(descending=True, stable=True)[: (positives > 0).sum()]
    if len(chosen) == 0:
        return
    sizes = positives[chosen].cpu()
    with _RowWorkers(sets.queries.device) as workers:
        shape, tile, panels = plan_panels(sets, sizes, memory_limit, workers.count, bytes_per_query)
        # One buffer serves all panels: fresh pages cost the system as much as the ranks.
        buffer = sets.queries.new_empty(shape[0], shape[1] + _GAP)[:, : shape[1]]
        if group is not None:
            panels = panels[dist.get_rank(group) :: dist.get_world_size(group)]
        spare = _most_left_out(sets)
        done = 0
        total = sum(end - begin for begin, end in panels)

        def rank(tile: Tensor, scores: Tensor, most: int) -> Sequence[Tensor]:
            return reduce(*_ranks(sets, tile, scores, most, spare, best_only))

        for begin, end in panels:
            panel = chosen[begin:end]
            tiles = panel.split(tile)
            scores = _panel_scores(sets, panel, buffer, spare).split(tile)
            most = [int(x.max()) for x in sizes[begin:end].split(tile)]
            for rows, values in zip(tiles, workers.map(rank, tiles, scores, most)):
                for whole, of_tile in zip(results, values):
                    whole[rows] = of_tile
            done += end - begin
            if progress is not None:
                progress(done, total)
    if group is not None:
        join_results(results, group)


def _panel_scores(sets: RetrievalSets, panel: Tensor, buffer: Tensor, spare: int) -> Tensor:
    """Scores of some queries, -inf where there is nothing to rank, in the buffer."""
    # Fewer than whole tiles where there is no memory.
    filled = min(whole_tiles(len(panel), QUERY_TILE), len(buffer))
    queries = sets.queries[pad(panel, (0, filled - len(panel)))]
    scores = buffer[:filled, : len(sets.gallery)]
    torch.mm(queries, sets.gallery.T, out=scores)
    scores[:, sets.num_rows :] = float('-inf')
    if sets.left_out is not None:
        first, count = sets.left_out[panel].unbind(1)
        place = torch.arange(spare, device=first.device)
        row, place = (place < count[:, None]).nonzero(as_tuple=True)
        scores[row, first[row] + place] = float('-inf')
    return scores[: len(panel)]


def _ranks(
    sets: RetrievalSets, tile: Tensor, scores: Tensor, most: int, spare: int, best_only: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """What ``Reduce`` takes, of some queries with their scores; at most ``most`` positives each."""
    sizes = count_positives(sets)[tile]
    place = torch.arange(most + spare, device=scores.device)
    column = sets.begin[tile, None] + place
    found = scores.gather(1, column.clamp_(max=scores.size(1) - 1))
    found = found.masked_fill(place >= sets.size[tile, None], float('-inf'))
    # What is left out comes after the positives, before the padding.
    found = found.sort(1, descending=True).values[:, :most].contiguous()
    thresholds = found.masked_fill(place[:most] >= sizes[:, None], float('inf'))
    thresholds = thresholds[:, :1] if best_only else thresholds
    return found, sizes, count_rows_at_or_above(scores, thresholds)


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


def join_results(results: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Add up; exact, since every row is zero on all ranks but one."""
    # NCCL knows no CPU tensors, and gloo not all operations on a GPU.
    place = {'nccl': 'cuda', 'gloo': 'cpu'}.get(dist.get_backend(group))
    for result in results:
        shared = result if place is None else result.to(place)
        dist.all_reduce(shared, group=group)
        result.copy_(shared)
