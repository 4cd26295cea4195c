"""Exact figures of retrieval by embeddings, without the matrix of all scores.

One panel of scores, a few queries by the whole gallery, is alive at a time.
Every comparison is made between scores of one matrix product, so rounding
cannot make two passes disagree.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from .retrieval_metrics_counting import (
    BYTES_PER_SCORE,
    ROW_MULTIPLE,
    count_rows_at_or_above,
)
from .retrieval_metrics_figures import RetrievalFigures, figures_of_ranks
from .retrieval_metrics_input import RetrievalSets, prepare_retrieval
from .retrieval_metrics_workers import RowWorkers

# A matrix product gains nothing from more queries at once.
_MOST_QUERIES = 512
# Scores that are ranked at once: what fits the cache, or keeps a GPU busy.
_TILE = {'cpu': 2**18, 'other': 2**24}
# Temporary tensors of the ranks, per positive.
_BYTES_PER_POSITIVE = 128


@torch.no_grad()
def retrieval_metrics(
    queries: Tensor,
    query_labels: Tensor,
    gallery: Tensor | None = None,
    gallery_labels: Tensor | None = None,
    *,
    similarity: str = 'cosine',
    memory_limit: int = 2**30,
    progress: Callable[[int, int], None] | None = None,
) -> RetrievalFigures:
    """AP, R-Precision, MAP@R and the best positive's rank of each query.

    A query's positives are the gallery samples of its class. Without a
    gallery every query searches the other queries, itself left out.

    With ``rank_i`` and ``rank+_i`` the numbers of gallery and of positive
    scores >= that of positive i, ``AP = mean_i rank+_i / rank_i``: a tie
    counts as ranked above, as in ``average_precision`` and scikit-learn. The
    figures with a cut-off place the negatives first among ties, the least
    favourable order: with ``p_i`` the place of the i-th best positive and R
    positives, R-Precision is ``#{p_i <= R} / R``, MAP@R (Musgrave et al., A
    Metric Learning Reality Check, ECCV 2020, eq. 3) is
    ``sum_{p_i <= R} (i / p_i) / R`` and a query counts for Recall@K when
    ``p_1 <= K``. No figure depends on the order of the gallery.

    Scores are float64 for float64 embeddings and float32 otherwise, in the
    precision of ``torch.mm`` (TF32 if you switched it on).

    Args:
        queries: (Q, D) float embeddings of any float dtype.
        query_labels: (Q,) integers of any dtype, one class per sample.
        gallery: (N, D) float embeddings on the queries' device; None for
            the queries themselves.
        gallery_labels: (N,) integers.
        similarity: ``'cosine'`` (a row of zeros scores 0) or ``'dot'``.
        memory_limit: Bytes of temporary tensors, beside normalised copies of
            queries and gallery and a few indices for each row of them.
        progress: Called as ``progress(done, total)`` after each panel, with
            numbers of queries.

    Returns:
        Figures per query; ``summary()`` averages them.

    Raises:
        ValueError: If a shape does not fit, an embedding is not finite, dot
            products overflow or ``memory_limit`` is less than one query needs.
        TypeError: If embeddings are not floats or labels not integers.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.9, 0.1], [0.0, 1.0]])
        >>> figures = retrieval_metrics(x, torch.tensor([0, 1, 0, 1]))
        >>> figures.average_precision
        tensor([1.0000, 0.3333, 1.0000, 1.0000], dtype=torch.float64)
        >>> figures.summary(recall_at=[1])['recall@1']
        0.75
    """
    sets = prepare_retrieval(
        queries, query_labels, gallery, gallery_labels, similarity
    )
    positives = sets.size - int(sets.own is not None)
    result = _no_figures(positives)
    # Queries with equally many positives share a panel, so that little of
    # its table of positives is padding.
    order = positives.argsort(descending=True, stable=True)
    total = int((positives > 0).sum())
    if total == 0:
        return result
    sizes = positives[order[:total]].tolist()
    with RowWorkers(sets.queries.device) as workers:
        rows, tile = _panel_shape(sets, sizes[0], memory_limit, workers.count)
        panel = sets.queries.new_full(
            (min(rows, total), _width(sets)), float('-inf')
        )
        for done in range(0, total, rows):
            chosen = order[done : min(done + rows, total)]
            scores = _fill_panel(sets, chosen, panel)
            tiles = scores.split(tile), chosen.split(tile)
            rank = partial(_rank_tile, sets, sizes[done])
            for of_tile, part in zip(tiles[1], workers.map(rank, *tiles)):
                for whole, values in zip(result[:-1], part[:-1]):
                    whole[of_tile] = values
            if progress is not None:
                progress(done + chosen.numel(), total)
    return result


def _no_figures(positives: Tensor) -> RetrievalFigures:
    missing = torch.full_like(positives, float('nan'), dtype=torch.float64)
    return RetrievalFigures(
        missing,
        missing.clone(),
        missing.clone(),
        torch.zeros_like(positives),
        positives,
    )


def _width(sets: RetrievalSets) -> int:
    return -(-sets.gallery.size(0) // ROW_MULTIPLE) * ROW_MULTIPLE


def _panel_shape(
    sets: RetrievalSets, most_positives: int, memory_limit: int, workers: int
) -> tuple[int, int]:
    """Queries of a panel, and of a tile of it, which is ranked at once."""
    device, width = sets.queries.device.type, _width(sets)
    panel_row = width * sets.queries.element_size()
    tile_row = BYTES_PER_SCORE * width
    tile_row += _BYTES_PER_POSITIVE * (most_positives + 1)
    tile_row *= workers
    least = panel_row + tile_row
    if memory_limit < least:
        raise ValueError(
            f'memory_limit={memory_limit} is too small: one query against '
            f'{sets.gallery.size(0)} gallery samples needs {least} bytes '
            f'on {workers} threads'
        )
    tile = _TILE.get(device, _TILE['other']) // width
    tile = max(min(tile, memory_limit // 2 // tile_row), 1)
    rows = (memory_limit - tile * tile_row) // panel_row
    return max(min(rows, _MOST_QUERIES), 1), tile


def _fill_panel(sets: RetrievalSets, chosen: Tensor, panel: Tensor) -> Tensor:
    """Scores of the chosen queries, -inf where there is nothing to rank.

    One panel serves all: fresh pages cost the system as much as the ranks.
    """
    scores = panel[: chosen.numel()]
    columns = scores[:, : sets.gallery.size(0)]
    torch.mm(sets.queries[chosen], sets.gallery.T, out=columns)
    if sets.own is not None:
        scores.scatter_(1, sets.own[chosen, None], float('-inf'))
    return scores


def _rank_tile(
    sets: RetrievalSets, most: int, scores: Tensor, chosen: Tensor
) -> RetrievalFigures:
    size, itself = sets.gallery.size(0), int(sets.own is not None)
    place = torch.arange(most + itself, device=scores.device)
    column = (sets.begin[chosen, None] + place).clamp_(max=size - 1)
    of_class = place < sets.size[chosen, None]
    found = scores.gather(1, column).masked_fill_(~of_class, float('-inf'))
    # The query itself comes after its positives, before the padding.
    found = found.sort(1, descending=True).values[:, :most].contiguous()
    sizes = sets.size[chosen] - itself
    real = place[:most] < sizes[:, None]
    counts = count_rows_at_or_above(
        scores, found.masked_fill(~real, float('inf'))
    )
    return figures_of_ranks(found, sizes, counts)
