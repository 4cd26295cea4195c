"""The best of the gallery for a query, as a retrieval sheet shows them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mmrank.errors import UserError
from mmrank.evaluation.gallery_index import GalleryIndex, read_rows
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.functional import nearest_in_gallery
from research.retrieval.result import RetrievalResult


@dataclass(frozen=True)
class Neighbour:
    """One image that was found.

    Attributes:
        path: Its file.
        score: Similarity to the query.
        label: Name of its class.
        is_right: Whether that is the query's class.
    """

    path: Path
    score: float
    label: str
    is_right: bool


@dataclass(frozen=True)
class Neighbours:
    """One query of one model.

    Attributes:
        model: Name of the model.
        path: Image file of the query.
        label: Name of its class.
        average_precision: Of this query, in [0, 1]; NaN where an index searched.
        num_positives: Right images in the gallery.
        found: Best first.
    """

    model: str
    path: Path
    label: str
    average_precision: float
    num_positives: int
    found: tuple[Neighbour, ...]


def find_neighbours(
    features: RetrievalFeatures,
    result: RetrievalResult,
    queries: Sequence[int],
    count: int = 10,
    root: str | os.PathLike = '.',
    index: GalleryIndex | None = None,
) -> list[Neighbours]:
    """Search the gallery for a few queries.

    Args:
        features: Embeddings of a model, with paths.
        result: Its figures.
        queries: Positions among the queries.
        count: Images for each.
        root: Folder that relative paths start from.
        index: Over the gallery; None compares with all of it.

    Returns:
        A row for each query.

    Raises:
        UserError: If the features have no paths.
    """
    if features.paths is None:
        raise UserError(
            f'the features of {result.name!r} have no image paths, which a '
            'retrieval sheet needs. Fix: write them with '
            'RetrievalMetric(out_file=..., path_key=...) from samples with '
            "'img_path', or skip the sheets."
        )
    gallery = features.rows_of_gallery()
    positions = torch.as_tensor(list(queries), device=gallery.device)
    rows = features.rows_of_queries()[positions]
    own = positions if features.in_gallery is None else None
    wanted = read_rows(features.embeddings(), rows)
    stored = features.gallery_embeddings()
    if index is None:
        scores, found = nearest_in_gallery(
            wanted, stored, count, similarity=features.similarity, own=own
        )
    else:
        count = min(count, len(stored) - int(own is not None))
        scores, found = index.search(wanted, count, own)
    found = gallery.cpu()[found.cpu()].tolist()
    labels, root = features.labels.tolist(), Path(root)

    def describe(row: int, score: float, label: int) -> Neighbour:
        return Neighbour(
            path=root / features.paths[row],
            score=score,
            label=_class_name(features, labels[row]),
            is_right=labels[row] == label,
        )

    return [
        Neighbours(
            model=result.name,
            path=root / features.paths[row],
            label=_class_name(features, labels[row]),
            average_precision=float(result.average_precision[query]),
            num_positives=int(result.num_positives[query]),
            found=tuple(
                describe(i, s, labels[row])
                for i, s in zip(of_query, of_scores)
                if s > float('-inf')  # an index may find fewer
            ),
        )
        for query, row, of_query, of_scores in zip(queries, rows.tolist(), found, scores.tolist())
    ]


def _class_name(features: RetrievalFeatures, label: int) -> str:
    names = features.classes
    if names is not None and 0 <= label < len(names):
        return str(names[label])
    return f'class {label}'
