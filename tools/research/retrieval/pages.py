"""The sheets of a retrieval report."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mmrank.errors import UserError
from mmrank.evaluation.gallery_index import GalleryIndex
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.visualization.figures import shorten
from research.common.model_entry import safe_name
from research.retrieval.neighbours import find_neighbours
from research.retrieval.query_selection import select_queries
from research.retrieval.result import RetrievalResult
from research.retrieval.sheet import draw_retrieval_sheet

_TITLES = {
    'random': 'random queries',
    'best': 'queries of the highest average precision',
    'worst': 'queries of the lowest average precision',
    'differing': 'queries on which average precision differs most',
}


def draw_sheets(
    models: Mapping[str, RetrievalFeatures],
    results: Sequence[RetrievalResult],
    folder: str | os.PathLike,
    *,
    sheets: Sequence[str] = ('random', 'worst', 'differing'),
    num_queries: int = 8,
    top_k: int = 10,
    seed: int = 0,
    root: str | os.PathLike = '.',
    indices: Mapping[str, GalleryIndex] | None = None,
) -> list[Path]:
    """Draw ``sheet_<choice>_<model>.png`` and ``sheet_differing.png``.

    Args:
        models: Features with paths by model name, all of one test set.
        results: Their figures, in the same order.
        folder: Where to write. Sheets of an earlier call are removed.
        sheets: Choices of queries; ``'differing'`` is left out for a single model.
        num_queries: Queries of a sheet at most.
        top_k: Images for each query.
        seed: Seed of random choices.
        root: Folder that relative paths start from.
        indices: What searches, by model name; None compares with all images. Their results have no
            average precision, so only ``'random'`` is drawn, and the titles name what is
            approximate.

    Returns:
        The files.

    Raises:
        UserError: If the sheets need average precision, and there is none.
    """
    folder = Path(folder)
    for old in folder.glob('sheet_*.png'):
        old.unlink()
    first = next(iter(models.values()))
    labels = first.labels[first.rows_of_queries()].cpu().numpy()
    precision = [
        result.average_precision
        if result.has_ranking
        else np.where(result.num_positives > 0, 0.0, np.nan)
        for result in results
    ]
    if indices and set(sheets) - {'random'}:
        raise UserError(
            f'sheets {sorted(set(sheets) - {"random"})} choose queries by average precision, which '
            'an index does not give. Fix: leave out --index, or draw --sheets random'
        )
    paths = []

    def search(result, queries):
        features = models[result.name]
        index = indices[result.name] if indices else None
        return find_neighbours(features, result, queries, top_k, root, index)

    for how in sheets:
        if how == 'differing':
            if len(results) < 2:
                continue
            # Two rows a query, so half as many of them.
            count = max(num_queries // 2, 1)
            chosen = select_queries(precision, labels, how, count, seed)
            rows = [
                row
                for query in chosen
                for result in _extremes(results, query)
                for row in search(result, [query])
            ]
            path = folder / 'sheet_differing.png'
            paths.append(draw_retrieval_sheet(rows, path, _TITLES[how].capitalize()))
            continue
        for result, own in zip(results, precision):
            chosen = select_queries([own], labels, how, num_queries, seed)
            path = folder / f'sheet_{how}_{safe_name(result.name)}.png'
            title = f'{shorten(result.name, 40)}: {_TITLES[how]}'
            if result.is_approximate:
                title += ', approximate search'
            rows = search(result, chosen)
            paths.append(draw_retrieval_sheet(rows, path, title))
    return paths


def _extremes(
    results: Sequence[RetrievalResult], query: int
) -> tuple[RetrievalResult, RetrievalResult]:
    """The models with the highest and the lowest AP of a query.

    The first and the last where all are equal.
    """
    order = sorted(results, key=lambda r: -r.average_precision[query])
    return order[0], order[-1]
