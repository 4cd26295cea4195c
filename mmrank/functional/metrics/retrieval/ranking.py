"""The rank of every positive of every query, a panel of scores at a time.

Every comparison is made between scores of one matrix product, so rounding cannot make two passes
disagree. Ranks of a process group take whole panels
in turn: the products of a panel do not depend on how many processes there
are, and so no figure does.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from .counting import BYTES_PER_SCORE, ROW_MULTIPLE, count_rows_at_or_above
from .input import QUERY_TILE, RetrievalSets, whole_tiles


class RowWorkers:
    """Works on tiles of rows with as many threads as torch uses.

    A tile that fits the cache takes tens of microseconds per operation: torch's own threads, which
    wait for each other after each, would spend
    more time waiting than working, above all on a busy machine.

    Args:
        device: Device of the scores; one worker unless it is the CPU.

    Attributes:
        count: Number of workers.
    """

    def __init__(self, device: torch.device) -> None:
        self.count = torch.get_num_threads() if device.type == 'cpu' else 1
        self._pool = None

    def __enter__(self) -> 'RowWorkers':
        if self.count > 1:
            self._pool = ThreadPoolExecutor(self.count, 'mmrank-rows', torch.set_num_threads, (1,))
        return self

    def __exit__(self, *exception) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
            # The workers' setting is also that of threads yet to come.
            torch.set_num_threads(self.count)

    def map(self, function: Callable, *arguments: Sequence) -> Iterator:
        """``map(function, *arguments)``, spread over the workers."""
        apply = map if self._pool is None else self._pool.map
        return apply(function, *arguments)


# A matrix product gains nothing from more queries at once.
_MOST_QUERIES = 480
# Scores that are ranked at once: so many that the calls cost little beside
# the counting, which goes through fewer on its own.
_TILE = {'cpu': 2**21, 'other': 2**24}
# Numbers between the rows of a panel: a multiple of 4 KiB would let the cache keep few of them.
_GAP = 16
# Temporary tensors of the ranks, per positive.
BYTES_PER_POSITIVE = 128


def count_positives(sets: RetrievalSets) -> Tensor:
    """Positives of each query, (Q,) int64, itself left out."""
    return sets.size - int(sets.own is not None)


def rank_positives(
    sets: RetrievalSets,
    reduce: Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]],
    results: Sequence[Tensor],
    *,
    memory_limit: int,
    bytes_per_query: int = 0,
    best_only: bool = False,
    progress: Callable[[int, int], None] | None = None,
    group: 'dist.ProcessGroup | None' = None,
) -> None:
    """Fill in what follows from the ranks of each query's positives.

    Args:
        sets: Checked input; the same on all ranks of ``group``.
        reduce: Gets the positives' scores (B, P), descending, the padding last, the number of
            positives (B,) and, for each positive, the gallery scores at or above it (B, P); returns
            a tensor of B rows for each of ``results``.
        results: Tensors of Q rows, zero; rows of queries without a positive stay zero.
        memory_limit: Bytes of temporary tensors.
        bytes_per_query: What ``reduce`` needs of them for a row, beside a
            few values per positive.
        best_only: Count for the best positive alone; ``reduce`` gets (B, 1) numbers of scores at or
            above it.
        progress: Called as ``progress(done, total)`` after each panel, with numbers of this rank's
            queries.
        group: Processes that share the work; None for this one alone.

    Raises:
        ValueError: If ``memory_limit`` is less than one query needs.
    """
    positives = count_positives(sets)
    # Queries with equally many positives share a panel, so that little of
    # its table of positives is padding.
    order = positives.argsort(descending=True, stable=True)
    total = int((positives > 0).sum())
    if total == 0:
        return
    sizes = positives[order[:total]].tolist()
    with RowWorkers(sets.queries.device) as workers:
        rows, tile = _panel_shape(sets, sizes[0], memory_limit, workers.count, bytes_per_query)
        width = _width(sets)
        panel = sets.queries.new_full(
            (min(rows, whole_tiles(total, QUERY_TILE)), width + _GAP), float('-inf')
        )[:, :width]
        begins = own_share(range(0, total, rows), group)
        own_total = sum(min(rows, total - begin) for begin in begins)
        done = 0
        for begin in begins:
            chosen = order[begin : min(begin + rows, total)]
            scores = _fill_panel(sets, chosen, panel)
            most = sizes[begin : begin + rows : tile]
            tiles = scores.split(tile), chosen.split(tile), most
            rank = partial(_rank_tile, sets, reduce, best_only)
            for of_tile, part in zip(tiles[1], workers.map(rank, *tiles)):
                for whole, values in zip(results, part):
                    whole[of_tile] = values
            done += chosen.numel()
            if progress is not None:
                progress(done, own_total)
    if group is not None:
        join_results(results, group)


def own_share(begins: Sequence[int], group: 'dist.ProcessGroup | None') -> Sequence[int]:
    if group is None:
        return begins
    return begins[dist.get_rank(group) :: dist.get_world_size(group)]


def join_results(results: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Add up; exact, since every row is zero on all ranks but one."""
    # NCCL knows no CPU tensors, and gloo not all operations on a GPU.
    place = {'nccl': 'cuda', 'gloo': 'cpu'}.get(dist.get_backend(group))
    for result in results:
        shared = result if place is None else result.to(place)
        dist.all_reduce(shared, group=group)
        result.copy_(shared)


def _width(sets: RetrievalSets) -> int:
    return -(-sets.gallery.size(0) // ROW_MULTIPLE) * ROW_MULTIPLE


def _panel_shape(
    sets: RetrievalSets, most_positives: int, memory_limit: int, workers: int, bytes_per_query: int
) -> tuple[int, int]:
    """Queries of a panel, and of a tile of it, which is ranked at once."""
    device, width = sets.queries.device.type, _width(sets)
    panel_row = (width + _GAP) * sets.queries.element_size()
    tile_row = BYTES_PER_SCORE * width + bytes_per_query
    tile_row += BYTES_PER_POSITIVE * (most_positives + 1)
    tile_row *= workers
    least = panel_row + tile_row
    if memory_limit < least:
        raise ValueError(
            f'memory_limit={memory_limit} is too small: one query against {sets.count} gallery '
            f'samples needs {least} bytes on {workers} threads'
        )
    tile = _TILE.get(device, _TILE['other']) // width
    # Every worker gets several tiles of a panel.
    tile = min(tile, _MOST_QUERIES // (4 * workers) if workers > 1 else tile)
    tile = max(min(tile, memory_limit // 2 // tile_row), 1)
    rows = (memory_limit - tile * tile_row) // panel_row
    rows = max(min(rows, _MOST_QUERIES), 1)
    return rows - (rows % QUERY_TILE if rows > QUERY_TILE else 0), tile


def _fill_panel(sets: RetrievalSets, chosen: Tensor, panel: Tensor) -> Tensor:
    """Scores of the chosen queries, -inf where there is nothing to rank.

    One panel serves all: fresh pages cost the system as much as the ranks.
    """
    scores = panel[: chosen.numel()]
    count = whole_tiles(chosen.numel(), QUERY_TILE)
    count = min(count, panel.size(0))  # fewer where there is no memory
    filled = pad(chosen, (0, count - chosen.numel()))
    out = panel[: filled.numel(), : sets.gallery.size(0)]
    torch.mm(sets.queries[filled], sets.gallery.T, out=out)
    out[:, sets.count :] = float('-inf')
    if sets.own is not None:
        scores.scatter_(1, sets.own[chosen, None], float('-inf'))
    return scores


def _rank_tile(
    sets: RetrievalSets,
    reduce: Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]],
    best_only: bool,
    scores: Tensor,
    chosen: Tensor,
    most: int,
) -> Sequence[Tensor]:
    size, itself = sets.gallery.size(0), int(sets.own is not None)
    place = torch.arange(most + itself, device=scores.device)
    column = (sets.begin[chosen, None] + place).clamp_(max=size - 1)
    of_class = place < sets.size[chosen, None]
    found = scores.gather(1, column).masked_fill_(~of_class, float('-inf'))
    # The query itself comes after its positives, before the padding.
    found = found.sort(1, descending=True).values[:, :most].contiguous()
    sizes = sets.size[chosen] - itself
    real = place[:most] < sizes[:, None]
    thresholds = found.masked_fill(~real, float('inf'))
    if best_only:
        thresholds = thresholds[:, :1]
    counts = count_rows_at_or_above(scores, thresholds)
    return reduce(found, sizes, counts)
