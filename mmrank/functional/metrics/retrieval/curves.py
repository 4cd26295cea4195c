"""Precision over recall and recall over K, as means over the queries."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .figures import RetrievalFigures, check_recall_at, empty_figures, figures_of_ranks
from .ranking import count_positives
from .stored import StoredEmbeddings
from .streaming import prepare_sets, rank_sets

# Tensors of one value per query and recall that are alive at a time.
_BYTES_PER_POINT = 32


class RetrievalCurves(NamedTuple):
    """Figures and precision-recall curve of each query.

    Attributes:
        figures: Figures per query.
        recall: (T,) float64 recall thresholds, from 0 to 1.
        precision: (Q, T) float64 interpolated precision in [0, 1], NaN
            without a positive.
    """

    figures: RetrievalFigures
    recall: Tensor
    precision: Tensor

    def mean_precision(self) -> Tensor:
        """Mean curve, (T,), of the queries that have a positive, else NaN."""
        return self.precision[self.figures.num_positives > 0].mean(0)


@torch.no_grad()
def retrieval_curves(
    queries: Tensor | StoredEmbeddings,
    query_labels: Tensor,
    gallery: Tensor | StoredEmbeddings | None = None,
    gallery_labels: Tensor | None = None,
    *,
    similarity: str = 'cosine',
    points: int = 101,
    memory_limit: int = 2**30,
    scratch: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    group: 'dist.ProcessGroup | None' = None,
) -> RetrievalCurves:
    """Figures and precision-recall curve of each query, in one pass.

    With ``rank_i`` and ``rank+_i`` as in ``retrieval_metrics`` and R positives, positive i is a
    point of recall ``rank+_i / R`` and precision ``rank+_i / rank_i``. The curve is the
    interpolated one (Manning et al., Introduction to Information Retrieval, 8.4): at recall r the
    best
    precision of all points of recall >= r, at the T thresholds k / (T - 1). The mean over queries
    is the curve that SOPRC (Wen et al., 2022) shows in fig. 2. It lies above AP, which is the mean
    of the points themselves.

    Args:
        queries: See ``retrieval_metrics``, also for all further arguments.
        query_labels: (Q,) integers.
        gallery: (N, D) floats, or None.
        gallery_labels: (N,) integers, or None.
        similarity: ``'cosine'`` or ``'dot'``.
        points: T, at least 2. The result holds 8 bytes per query and point.
        memory_limit: Bytes of temporary tensors.
        scratch: Folder of files for stored embeddings.
        progress: Called as ``progress(done, total)``.
        group: Processes that share the work.

    Returns:
        Figures as of ``retrieval_metrics``, and the curves.

    Raises:
        ValueError: As ``retrieval_metrics``, or if ``points`` is below 2.
        TypeError: As ``retrieval_metrics``.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.9, 0.1], [0.0, 1.0]])
        >>> curves = retrieval_curves(x, torch.tensor([0, 1, 0, 1]), points=3)
        >>> curves.mean_precision()
        tensor([0.8333, 0.8333, 0.8333], dtype=torch.float64)
    """
    if isinstance(points, bool) or not isinstance(points, int) or points < 2:
        raise ValueError(f'points must be an integer of at least 2, got {points!r}')
    sets = prepare_sets(
        *(queries, query_labels, gallery, gallery_labels), *(similarity, memory_limit, scratch)
    )
    num_positives = count_positives(sets)
    figures = empty_figures(num_positives)
    precision = figures.average_precision.new_zeros(num_positives.numel(), points)

    def reduce(found, sizes, counts):
        return (
            *figures_of_ranks(found, sizes, counts)[:-1],
            interpolated_precision(found, sizes, counts, points),
        )

    rank_sets(
        sets,
        reduce,
        [*figures[:-1], precision],
        memory_limit=memory_limit,
        bytes_per_query=_BYTES_PER_POINT * points,
        progress=progress,
        group=group,
    )
    precision[num_positives == 0] = float('nan')
    return RetrievalCurves(
        figures.without_unranked(),
        torch.linspace(0, 1, points, dtype=torch.float64, device=precision.device),
        precision,
    )


def interpolated_precision(
    positives: Tensor, sizes: Tensor, at_or_above: Tensor, points: int
) -> Tensor:
    """Best precision at or beyond each recall k / (points - 1).

    Args:
        positives: (B, P) scores of the positives, descending, the padding
            (of any value not above the real ones) last.
        sizes: (B,) int64 number of positives, at least 1.
        at_or_above: (B, P) int64 gallery scores >= each positive's.
        points: Number of recall thresholds.

    Returns:
        (B, points) float64.
    """
    place = torch.arange(1, positives.size(1) + 1, device=positives.device)
    ascending = positives.neg()
    pos_at_or_above = torch.searchsorted(ascending, ascending, right=True)
    precision = pos_at_or_above.double() / at_or_above
    precision = precision.masked_fill(place > sizes[:, None], 0.0)
    best = precision.flip(1).cummax(1).values.flip(1)
    # Positives needed for a recall of k / last, rounded up without floats.
    last = points - 1
    k = torch.arange(points, device=positives.device)
    needed = (k * sizes[:, None] + last - 1) // last
    return best.gather(1, (needed - 1).clamp_(min=0))


def recall_curve(figures: RetrievalFigures, at: Sequence[int]) -> list[float]:
    """Recall@K for many K.

    Args:
        figures: Figures per query.
        at: The K, each at least 1.

    Returns:
        The share of queries with a positive among the first K of its
        gallery, for each K; NaN when no query has a positive.

    Raises:
        ValueError: If a K is no integer of at least 1.
        TypeError: If ``at`` is not a list.
    """
    check_recall_at(at)
    ranks = figures.first_rank[figures.num_positives > 0].sort().values
    cutoffs = torch.tensor(list(at), dtype=ranks.dtype, device=ranks.device)
    found = torch.searchsorted(ranks, cutoffs, right=True)
    return (found.double() / ranks.numel()).tolist()
