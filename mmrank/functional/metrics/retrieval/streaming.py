"""The ranks of all positives, with the embeddings on disk.

A copy of the gallery in order of class and with rows of length 1, if these
are asked for, lies in a file. A panel of queries goes through it block by block twice: first
through the blocks of its own classes, for the scores of
the positives, then through all, to count the scores at or above each. Both times a score comes from
the same matrix product, so rounding cannot make the passes disagree.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from .counting import BYTES_PER_SCORE, count_rows_at_or_above
from .input import (
    GALLERY_TILE,
    QUERY_TILE,
    RetrievalSets,
    check_dot_products,
    check_embeddings,
    check_labels,
    check_pair,
    class_ranges,
    largest_value,
    prepare_retrieval,
    unit_rows,
    whole_tiles,
)
from .ranking import BYTES_PER_POSITIVE, RowWorkers, join_results, own_share, rank_positives
from .stored import ScratchRows, StoredEmbeddings

# More queries or gallery rows at once gain nothing.
_MOST_QUERIES = 2**14
_MOST_ROWS = 2**12


class StreamedSets(NamedTuple):
    """What the ranking reads.

    Attributes:
        queries: (Q, D) in order of class.
        gallery: (N, D) in order of class.
        order: (Q,) int64 number of each query in ``queries``.
        begin: (Q,) int64 first gallery row of the class, by query.
        size: (Q,) int64 gallery rows of the class, by query.
        own: (Q,) int64 the query's own gallery row, None for separate sets.
    """

    queries: ScratchRows
    gallery: ScratchRows
    order: Tensor
    begin: Tensor
    size: Tensor
    own: Tensor | None


def prepare_sets(
    queries: Tensor | StoredEmbeddings,
    query_labels: Tensor,
    gallery: Tensor | StoredEmbeddings | None,
    gallery_labels: Tensor | None,
    similarity: str,
    memory_limit: int,
    scratch: str | None,
) -> RetrievalSets | StreamedSets:
    """Check, normalise and sort; see ``retrieval_metrics`` for the inputs."""
    if not isinstance(queries, StoredEmbeddings):
        if isinstance(gallery, StoredEmbeddings):
            raise TypeError(
                'queries are a tensor and the gallery is in a file; pass both as StoredEmbeddings'
            )
        return prepare_retrieval(queries, query_labels, gallery, gallery_labels, similarity)
    check_pair(gallery, gallery_labels, similarity)
    same_set = gallery is None
    if same_set:
        gallery, gallery_labels = queries, query_labels
    check_embeddings(queries, 'queries')
    if not isinstance(gallery, StoredEmbeddings):
        raise TypeError(
            'queries are in a file and the gallery is a tensor; pass both as StoredEmbeddings'
        )
    check_embeddings(gallery, 'gallery', queries)
    query_labels = check_labels(query_labels, queries, 'query_labels')
    gallery_labels = check_labels(gallery_labels, gallery, 'gallery_labels')
    dtype = torch.promote_types(queries.dtype, gallery.dtype)
    dtype = torch.promote_types(dtype, torch.float32)

    def sort(stored, labels, name):
        order = labels.argsort(stable=True)
        rows = ScratchRows(dtype, stored.shape[1], scratch or stored.folder)
        largest = 0.0
        most = stored.rows_at_a_time(memory_limit // 8)
        parts = -(-order.numel() // most)
        for part in order.tensor_split(parts) if parts else ():
            found = stored.read(part)
            largest = max(largest, largest_value(found, name, part))
            found = found.to(dtype)
            rows.append(unit_rows(found) if similarity == 'cosine' else found)
        return order, rows, largest

    order, sorted_gallery, largest = sort(gallery, gallery_labels, 'gallery')
    begin, size = class_ranges(gallery_labels[order], query_labels)
    if same_set:
        sets = StreamedSets(
            *(sorted_gallery, sorted_gallery), *(order, begin, size, order.argsort())
        )
        largest *= largest
    else:
        query_order, sorted_queries, other = sort(queries, query_labels, 'queries')
        sets = StreamedSets(sorted_queries, sorted_gallery, query_order, begin, size, None)
        largest *= other
    if similarity == 'dot':
        check_dot_products(largest, queries.shape[1], dtype)
    return sets


def rank_sets(
    sets: RetrievalSets | StreamedSets,
    reduce: Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]],
    results: Sequence[Tensor],
    *,
    memory_limit: int,
    bytes_per_query: int = 0,
    best_only: bool = False,
    progress: Callable[[int, int], None] | None = None,
    group: 'dist.ProcessGroup | None' = None,
) -> None:
    """``rank_positives``, wherever the embeddings are."""
    options = dict(
        memory_limit=memory_limit,
        bytes_per_query=bytes_per_query,
        best_only=best_only,
        progress=progress,
        group=group,
    )
    if isinstance(sets, RetrievalSets):
        return rank_positives(sets, reduce, results, **options)
    return _rank_streamed(sets, reduce, results, **options)


def _rank_streamed(
    sets, reduce, results, *, memory_limit, bytes_per_query, best_only, progress, group
) -> None:
    itself = int(sets.own is not None)
    in_order = sets.size[sets.order] - itself
    kept = (in_order > 0).nonzero()[:, 0]
    if kept.numel() == 0:
        return
    sizes = in_order[kept]
    with RowWorkers(torch.device('cpu')) as workers:
        block, tile = _block_shape(sets, memory_limit, workers.count)
        panels = _panels(sets, sizes, memory_limit, block, bytes_per_query)
        share = own_share(panels, group)
        total = sum(end - begin for begin, end in share)
        most = max(end - begin for begin, end in panels)
        buffer = torch.empty(whole_tiles(most, QUERY_TILE) * block, dtype=sets.gallery.dtype)
        done = 0
        for begin, end in share:
            positions = kept[begin:end]
            panel = _Panel(sets, positions, block, buffer)
            found = panel.positive_scores(int(sizes[begin:end].max()))
            counted = found[:, :1].contiguous() if best_only else found
            counts = panel.count_at_or_above(counted, sizes[begin:end], tile, workers)
            chosen = sets.order[positions]
            for part in torch.arange(end - begin).split(tile):
                values = reduce(found[part], sizes[begin:end][part], counts[part])
                for whole, of_part in zip(results, values):
                    whole[chosen[part]] = of_part
            done += end - begin
            if progress is not None:
                progress(done, total)
    if group is not None:
        join_results(results, group)


def _block_shape(sets: StreamedSets, memory_limit: int, workers: int) -> tuple[int, int]:
    """Gallery rows of a block, and queries whose scores are counted at once.

    Each takes at most an eighth of the memory.
    """
    part = memory_limit // 8
    of_row = max(sets.gallery.row_bytes, BYTES_PER_SCORE * workers)
    block = min(part // of_row, _MOST_ROWS)
    block -= block % GALLERY_TILE
    if block == 0:
        raise _too_small(sets, memory_limit, 8 * of_row * GALLERY_TILE)
    block = min(block, whole_tiles(len(sets.gallery), GALLERY_TILE))
    return block, max(part // (BYTES_PER_SCORE * workers * block), 1)


def _panels(
    sets: StreamedSets, sizes: Tensor, memory_limit: int, block: int, bytes_per_query: int
) -> list[tuple[int, int]]:
    """First and last query of each panel, whose tables fit half the memory."""
    item = torch.empty(0, dtype=sets.gallery.dtype).element_size()
    of_product = block * item + 2 * sets.queries.row_bytes
    panels, begin = [], 0
    while begin < sizes.numel():
        widest = sizes[begin : begin + _MOST_QUERIES].cummax(0).values + 1
        rows = torch.arange(1, widest.numel() + 1)
        needed = rows * (BYTES_PER_POSITIVE * widest + bytes_per_query)
        needed += whole_tiles(rows, QUERY_TILE) * of_product
        count = int((needed <= memory_limit // 2).sum())
        if count == 0:
            raise _too_small(sets, memory_limit, 2 * int(needed[0]))
        panels.append((begin, begin + count))
        begin += count
    return panels


def _too_small(sets: StreamedSets, limit: int, least: int) -> ValueError:
    return ValueError(
        f'memory_limit={limit} is too small: one query against {len(sets.gallery)} stored gallery '
        f'samples needs about {least} bytes'
    )


class _Panel:
    """Some queries, and their products with blocks of the gallery."""

    def __init__(self, sets, positions, block, buffer) -> None:
        self.sets, self.block, self._buffer = sets, block, buffer
        queries = sets.queries.take(positions, block)
        self.count = positions.numel()
        self.queries = pad(queries, (0, 0, 0, -self.count % QUERY_TILE))
        chosen = sets.order[positions]
        self.begin, self.size = sets.begin[chosen], sets.size[chosen]
        self.own = None if sets.own is None else sets.own[chosen]

    def scores(self, first: int, block: Tensor) -> Tensor:
        """Scores of a block, -inf for a query itself."""
        columns = block.size(0)
        block = pad(block, (0, 0, 0, -columns % GALLERY_TILE))
        shape = self.queries.size(0), block.size(0)
        out = self._buffer[: shape[0] * shape[1]].view(shape)
        torch.mm(self.queries, block.T, out=out)
        out = out[: self.count, :columns]
        if self.own is not None:
            column = self.own - first
            rows = ((column >= 0) & (column < columns)).nonzero()[:, 0]
            out[rows, column[rows]] = float('-inf')
        return out

    def positive_scores(self, most: int) -> Tensor:
        """(B, most) scores of the positives, descending, -inf behind."""
        place = torch.arange(most + int(self.own is not None))
        column = self.begin[:, None] + place
        column = column.masked_fill_(place >= self.size[:, None], -1)
        found = self.queries.new_full(column.shape, float('-inf'))
        low = int(self.begin.min()) // self.block * self.block
        high = int((self.begin + self.size).max())
        for first in range(low, high, self.block):
            end = min(first + self.block, len(self.sets.gallery))
            here = (column >= first) & (column < end)
            if not here.any():
                continue
            scores = self.scores(first, self.sets.gallery.read(first, end))
            at = (column - first).clamp_(0, end - first - 1)
            torch.where(here, scores.gather(1, at), found, out=found)
        # The query itself comes after its positives, before the padding.
        return found.sort(1, descending=True).values[:, :most].contiguous()

    def count_at_or_above(
        self, found: Tensor, sizes: Tensor, tile: int, workers: RowWorkers
    ) -> Tensor:
        """(B, P) int64 gallery scores >= each positive's."""
        place = torch.arange(found.size(1))
        thresholds = found.masked_fill(place >= sizes[:, None], float('inf'))
        counts = torch.zeros_like(found, dtype=torch.int64)
        for first, block in self.sets.gallery.blocks(self.block):
            tiles = self.scores(first, block).split(tile)
            counted = workers.map(count_rows_at_or_above, tiles, thresholds.split(tile))
            for whole, part in zip(counts.split(tile), counted):
                whole += part
        return counts
