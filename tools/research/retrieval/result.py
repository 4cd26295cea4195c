"""Figures and curves of one model's embeddings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mmrank.errors import UserError
from mmrank.evaluation.gallery_index import GalleryIndex, index_figures, index_summary
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.functional import recall_curve, retrieval_curves

# K of the Recall@K curve, about evenly spaced on a logarithmic axis.
_CUTOFFS = 60


@dataclass(frozen=True)
class RetrievalResult:
    """One model.

    Attributes:
        name: Name of the model.
        metrics: ``mAP``, ``R_precision``, ``MAP_at_R`` and ``recall@K`` in
            [0, 1].
        queries: Queries with a positive.
        queries_without_positive: Queries that the means leave out.
        gallery_size: Samples in the gallery.
        recall: (T,) recall thresholds of the precision-recall curve.
        precision: (T,) mean interpolated precision.
        cutoffs: The K of the Recall@K curve.
        recall_at: Recall@K at these.
        average_precision: (Q,) per query, NaN without a positive.
        num_positives: (Q,) per query.
        is_approximate: Whether an index may have missed a neighbour.

    Of an index there are no figures of the whole ranking: ``metrics`` has Recall@K alone,
    ``recall``, ``precision`` and ``average_precision`` are empty.
    """

    name: str
    metrics: dict[str, float]
    queries: int
    queries_without_positive: int
    gallery_size: int
    recall: np.ndarray
    precision: np.ndarray
    cutoffs: list[int]
    recall_at: list[float]
    average_precision: np.ndarray
    num_positives: np.ndarray
    is_approximate: bool = False

    @property
    def has_ranking(self) -> bool:
        """Whether the whole ranking was made, and so average precision."""
        return self.recall.size > 0


def evaluate_features(
    name: str,
    features: RetrievalFeatures,
    *,
    recall_at: Sequence[int] = (1, 10, 100, 1000),
    points: int = 101,
    memory_limit: int = 2**30,
    scratch: str | None = None,
    index: GalleryIndex | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RetrievalResult:
    """Compute all figures and curves in one pass over the gallery.

    Args:
        name: Name of the model.
        features: Its embeddings; computed on their device.
        recall_at: The K of the table; those above the gallery's size are
            left out, for they are all one.
        points: Recall thresholds of the curve.
        memory_limit: Bytes of temporary tensors.
        scratch: Folder of files for embeddings that are in a file.
        index: Over the gallery; gives Recall@K alone. None: exact figures.
        progress: Called as ``progress(done, total)``.

    Returns:
        The figures.

    Raises:
        UserError: If no query has a positive.
        ValueError: See ``retrieval_curves``.
    """
    rows = features.rows_of_gallery()
    size = rows.numel() - int(features.in_gallery is None)
    recall_at = [k for k in recall_at if k <= size]
    if index is None:
        curves = retrieval_curves(
            *features.sets(),
            similarity=features.similarity,
            points=points,
            memory_limit=memory_limit,
            scratch=scratch,
            progress=progress,
        )
        figures = curves.figures
        summary = figures.summary(recall_at)
    else:
        figures = index_figures(features, index, max(recall_at, default=1))
        summary = index_summary(features, index, recall_at, figures=figures)
    queries = summary.pop('queries')
    without = summary.pop('queries_without_positive')
    if queries == 0:
        raise UserError(
            f'{name}: none of {without} queries has another sample of its class among {size} of '
            'the gallery. Fix: check labels and in_gallery of the features.'
        )
    cutoffs = np.unique(np.geomspace(1, min(size, max(recall_at)), _CUTOFFS).round())
    cutoffs = [int(k) for k in cutoffs]
    return RetrievalResult(
        name=name,
        metrics=summary,
        queries=queries,
        queries_without_positive=without,
        gallery_size=rows.numel(),
        recall=(np.empty(0) if index is not None else curves.recall.cpu().numpy()),
        precision=(np.empty(0) if index is not None else curves.mean_precision().cpu().numpy()),
        cutoffs=cutoffs,
        recall_at=recall_curve(figures, cutoffs),
        average_precision=figures.average_precision.cpu().numpy(),
        num_positives=figures.num_positives.cpu().numpy(),
        is_approximate=index is not None and index.is_approximate,
    )


def check_same_test_set(models: dict[str, RetrievalFeatures]) -> None:
    """Check that models were evaluated on the same samples in one order.

    Args:
        models: Features by name of the model.

    Raises:
        UserError: If there is no model or labels or galleries differ.
    """
    if not models:
        raise UserError('no model is passed. Fix: pass at least one.')
    first_name, first = next(iter(models.items()))
    for name, other in models.items():
        if not first.labels.equal(other.labels):
            raise UserError(
                f'{name!r} has {len(other.labels)} samples with other labels '
                f'than the {len(first.labels)} of {first_name!r}. Fix: test '
                'both on the same data set, without shuffling.'
            )
        masks = first.in_gallery, other.in_gallery
        if (masks[0] is None) != (masks[1] is None) or (
            masks[0] is not None and not masks[0].equal(masks[1])
        ):
            raise UserError(
                f'{name!r} has another gallery than {first_name!r}. Fix: set '
                'the same gallery_key in both configs.'
            )
