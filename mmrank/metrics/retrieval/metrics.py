"""Exact figures and curves of retrieval by embeddings, without the matrix of all scores."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from mmrank.metrics.retrieval.input import prepare_sets, query_blocks
from mmrank.metrics.retrieval.ranking import rank_positives
from mmrank.settings import check_count
from mmrank.tensors import check_index, check_tensors, checked_weight

# Tensors of one value per query and recall that are alive at a time.
_BYTES_PER_POINT = 32
# Bytes that a search of the nearest takes for a score.
_BYTES_PER_SCORE = 32


class _RetrievalFigures(NamedTuple):
    """(Q,) figures per query, in the order of the queries."""

    # The first three are float64 in [0, 1], NaN without a positive.
    average_precision: Tensor
    r_precision: Tensor
    map_at_r: Tensor
    first_rank: Tensor  # int64 position of the best positive, from 1; 0 without a positive
    num_positives: Tensor  # int64 positives in the query's gallery

    def summary(
        self, recall_at: Sequence[int] = (1, 10, 100, 1000), weight: Tensor | None = None
    ) -> dict[str, float]:
        """Means over the queries that have a positive: ``mAP``, ``R_precision``, ``MAP_at_R``.

        And ``recall@K``, all in [0, 1], NaN when no query has a positive; and the counts
        ``queries`` and ``queries_without_positive``. With ``weight``, (Q,) finite numbers >= 0, a
        query of weight w counts as w queries in the means, one of 0 nowhere.
        """
        check_recall_at(recall_at)
        means = dict(zip(('mAP', 'R_precision', 'MAP_at_R'), self[:3]))
        means |= {f'recall@{k}': (self.first_rank <= k).double() for k in recall_at}
        result = {name: float(self._mean(values, weight)) for name, values in means.items()}
        usable = self.num_positives > 0
        counted = torch.ones_like(usable) if weight is None else weight > 0
        counts = dict(queries=counted & usable, queries_without_positive=counted & ~usable)
        return result | {name: int(mask.sum()) for name, mask in counts.items()}

    def _mean(self, values: Tensor, weight: Tensor | None) -> Tensor:
        """Mean over the queries that have a positive, of (Q, ...) values; else NaN."""
        usable = self.num_positives > 0
        if weight is None:
            return values[usable].mean(0)
        weight = checked_weight('weight', weight, tuple(usable.shape))[usable].double()
        return torch.tensordot(weight, values[usable], 1) / weight.sum()


class _RetrievalCurves(NamedTuple):
    """Figures and precision-recall curve of each query."""

    figures: _RetrievalFigures
    recall: Tensor  # (T,) float64 recall thresholds, from 0 to 1
    precision: Tensor  # (Q, T) float64 interpolated precision in [0, 1], NaN without a positive

    def mean_precision(self, weight: Tensor | None = None) -> Tensor:
        """Mean curve, (T,), of the queries that have a positive, else NaN.

        ``weight``: as in ``summary`` of the figures.
        """
        return self.figures._mean(self.precision, weight)


def check_recall_at(recall_at: Sequence[int], name: str = 'recall_at') -> None:
    """Check that the K of Recall@K, or of another figure, are integers of at least 1."""
    if isinstance(recall_at, str) or not isinstance(recall_at, Sequence):
        raise TypeError(
            f'{name} must be a list of integers, got {recall_at!r}; write {name}=(1, 10)'
        )
    for k in recall_at:
        check_count(f'each of {name}', k)


@torch.no_grad()
def retrieval_metrics(
    queries: Tensor,
    query_labels: Tensor,
    gallery: Tensor | None = None,
    gallery_labels: Tensor | None = None,
    *,
    group: 'dist.ProcessGroup | None' = None,
    leave_out: Tensor | tuple[Tensor, Tensor] | None = None,
) -> _RetrievalFigures:
    """AP, R-Precision, MAP@R and the best positive's rank of each query.

    A query's positives are the gallery samples of its class. Without a gallery every query searches
    the other queries, itself left out.

    With ``rank_i`` and ``rank+_i`` the numbers of gallery and of positive scores >= the score of
    positive i, ``AP = mean_i rank+_i / rank_i``: a tie counts as ranked above, as in
    ``average_precision`` and scikit-learn. The figures with a cut-off place the negatives first
    among ties, the least favourable order: with ``p_i`` the place of the i-th best positive and R
    positives, R-Precision is ``#{p_i <= R} / R``, MAP@R (Musgrave et al., A Metric Learning Reality
    Check, ECCV 2020, eq. 3) is ``sum_{p_i <= R} (i / p_i) / R`` and a query counts for Recall@K
    when ``p_1 <= K``. No figure depends on the order of the gallery.

    Scores are cosines, 0 for a row of zeros, float64 for float64 embeddings and float32 otherwise,
    in the precision of ``torch.mm`` (TF32 if you switched it on).

    Args:
        queries: (Q, D) embeddings of any float dtype.
        query_labels: (Q,) integers >= 0, one class per sample; samples without a class are left
            out beforehand. Or (Q, C) zeros and ones, C at least 2, where a sample has several
            labels: what shares one is a positive.
        gallery: (N, D) float embeddings on the queries' device; None, or the very tensor
            ``queries``, for the queries themselves, each left out of its own gallery.
        gallery_labels: (N,) integers, or (N, C) zeros and ones.
        group: Processes that share the work. All pass the same input and get the same figures,
            equal to a single process's bit for bit where the machines are equal. None: this
            process alone.
        leave_out: Integer ids, (Q,) of the queries and (N,) of the gallery, or (Q,) alone without a
            gallery: gallery samples of the query's class and id are neither positive nor negative.
            With cameras it is the protocol of re-identification (Zheng et al., Scalable Person
            Re-identification, ICCV 2015, section 3.3); with numbers of samples a query leaves
            itself out of a gallery that holds it.

    Returns:
        Figures per query; ``summary()`` averages them.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.9, 0.1], [0.0, 1.0]])
        >>> figures = retrieval_metrics(x, torch.tensor([0, 1, 0, 1]))
        >>> figures.average_precision
        tensor([1.0000, 0.3333, 1.0000, 1.0000], dtype=torch.float64)
        >>> figures.summary(recall_at=[1])['recall@1']
        0.75
    """
    sets = prepare_sets(queries, query_labels, gallery, gallery_labels, leave_out)
    result = _empty_figures(sets.query_labels)
    rank_positives(sets, _figures_of_ranks, result, group=group)
    return result


@torch.no_grad()
def retrieval_curves(
    queries: Tensor,
    query_labels: Tensor,
    gallery: Tensor | None = None,
    gallery_labels: Tensor | None = None,
    *,
    points: int = 101,
    group: 'dist.ProcessGroup | None' = None,
    leave_out: Tensor | tuple[Tensor, Tensor] | None = None,
) -> _RetrievalCurves:
    """Figures and precision-recall curve of each query, in one pass.

    With ``rank_i`` and ``rank+_i`` as in ``retrieval_metrics`` and R positives, positive i is a
    point of recall ``rank+_i / R`` and precision ``rank+_i / rank_i``. The curve is the
    interpolated one (Manning et al., Introduction to Information Retrieval, 8.4): at recall r the
    best precision of all points of recall >= r, at the T thresholds k / (T - 1). The mean over
    queries is the curve that SOPRC (Wen et al., 2022) shows in fig. 2. It lies above AP, which is
    the mean of the points themselves.

    See ``retrieval_metrics`` for the arguments, except ``points``: T, an integer of at least 2. The
    result, its figures and the curves, holds 8 bytes per query and point.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.9, 0.1], [0.0, 1.0]])
        >>> curves = retrieval_curves(x, torch.tensor([0, 1, 0, 1]), points=3)
        >>> curves.mean_precision()
        tensor([0.8333, 0.8333, 0.8333], dtype=torch.float64)
    """
    check_count('points', points, least=2)
    sets = prepare_sets(queries, query_labels, gallery, gallery_labels, leave_out)
    figures = _empty_figures(sets.query_labels)
    precision = figures.average_precision.new_zeros(len(queries), points)

    def reduce(*ranks: Tensor) -> tuple[Tensor, ...]:
        return *_figures_of_ranks(*ranks), _interpolated_precision(points, *ranks)

    rank_positives(
        sets, reduce, [*figures, precision], bytes_per_query=_BYTES_PER_POINT * points, group=group
    )
    recall = torch.linspace(0, 1, points, dtype=torch.float64, device=precision.device)
    return _RetrievalCurves(figures, recall, precision)


def recall_curve(
    figures: _RetrievalFigures, at: Sequence[int], weight: Tensor | None = None
) -> list[float]:
    """Recall@K for many K >= 1: the share of queries with a positive among their first K.

    NaN when no query has a positive. ``weight``: as in ``summary`` of the figures.
    """
    check_recall_at(at)
    usable = figures.num_positives > 0
    ranks, order = figures.first_rank[usable].sort()
    cutoffs = torch.tensor(list(at), dtype=ranks.dtype, device=ranks.device)
    found = torch.searchsorted(ranks, cutoffs, right=True)
    if weight is None:
        return (found.double() / ranks.numel()).tolist()
    weight = checked_weight('weight', weight, tuple(usable.shape))[usable].double()
    total = pad(weight[order].cumsum(0), (1, 0))
    return (total[found] / total[-1]).tolist()


@torch.no_grad()
def nearest_in_gallery(
    queries: Tensor, gallery: Tensor, count: int, *, own: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Best gallery samples of each query, best first; equal scores keep the order of the gallery.

    Args:
        queries: (Q, D) float embeddings.
        gallery: (N, D) float embeddings on the same device.
        count: Samples per query, at least 1.
        own: (Q,) int64 gallery rows of the queries themselves, which are left out; None for
            separate sets, or if the gallery is the very tensor ``queries``: row i is query i.

    Returns:
        (Q, K) scores and (Q, K) int64 gallery rows, with K the smaller of ``count`` and the
        gallery's size without the query.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> nearest_in_gallery(x[:1], x, 2, own=torch.tensor([0]))
        (tensor([[0.8000, 0.0000]]), tensor([[1, 2]]))
    """
    check_count('count', count)
    if own is None and gallery is queries:
        own = torch.arange(len(queries), device=queries.device)
    check_tensors(own=own)
    if own is not None:
        check_index('own', own, len(gallery), 'the row of each query in the gallery')
    labels = [torch.zeros(len(x), dtype=torch.int64) for x in (queries, gallery)]
    sets = prepare_sets(queries, labels[0], gallery, labels[1])
    count = min(count, len(gallery) - int(own is not None))
    scores = sets.queries.new_empty(len(queries), count)
    rows = torch.empty_like(scores, dtype=torch.int64)
    every = torch.arange(len(queries), device=queries.device)
    for part in query_blocks(every, _BYTES_PER_SCORE * len(gallery)):
        block = sets.scores(part)
        if own is not None:
            block.scatter_(1, own[part, None], float('-inf'))
        found = block.sort(dim=1, descending=True, stable=True)
        scores[part] = found.values[:, :count]
        rows[part] = found.indices[:, :count]
    return scores, rows


def _empty_figures(query_labels: Tensor) -> _RetrievalFigures:
    figures = query_labels.new_zeros(3, len(query_labels), dtype=torch.float64)
    counts = query_labels.new_zeros(2, len(query_labels), dtype=torch.int64)
    return _RetrievalFigures(*figures, *counts)


def _figures_of_ranks(positives: Tensor, sizes: Tensor, at_or_above: Tensor) -> tuple[Tensor, ...]:
    """(B,) fields of ``_RetrievalFigures``, of what ``Reduce`` takes.

    The padding of the (B, P) positives may have any value not above the real ones.
    """
    place = torch.arange(1, positives.size(1) + 1, device=positives.device)
    valid = place <= sizes[:, None]
    ascending = positives.neg()
    pos_at_or_above = torch.searchsorted(ascending, ascending, right=True)
    # Among ties the negatives come first: a cut-off then keeps the least that any order of the ties
    # keeps.
    position = at_or_above - pos_at_or_above + place
    kept = valid & (position <= sizes[:, None])
    size = sizes.double()
    zero = size.new_zeros(())
    precision = pos_at_or_above.double() / at_or_above
    at_place = place.double() / position
    # 0/0 = NaN without a positive.
    return (
        torch.where(valid, precision, zero).sum(1) / size,
        kept.sum(1) / size,
        torch.where(kept, at_place, zero).sum(1) / size,
        torch.where(sizes > 0, position[:, 0], 0),
        sizes,
    )


def _interpolated_precision(
    points: int, positives: Tensor, sizes: Tensor, at_or_above: Tensor
) -> Tensor:
    """Best precision at or beyond each recall k / (points - 1), (B, points) float64."""
    place = torch.arange(1, positives.size(1) + 1, device=positives.device)
    ascending = positives.neg()
    precision = torch.searchsorted(ascending, ascending, right=True).double() / at_or_above
    precision = precision.masked_fill(place > sizes[:, None], 0.0)
    best = precision.flip(1).cummax(1).values.flip(1)
    # Positives needed for a recall of k / last, rounded up without floats.
    last = points - 1
    k = torch.arange(points, device=positives.device)
    needed = (k * sizes[:, None] + last - 1) // last
    found = best.gather(1, (needed - 1).clamp_(min=0))
    return found.masked_fill(sizes[:, None] == 0, torch.nan)
