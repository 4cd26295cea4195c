"""Figures and curves of one model's embeddings; their table and plots."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator
from rich.console import Console

from mmrank.errors import UserError
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.files import write_atomically, write_csv_atomically
from mmrank.functional import recall_curve, retrieval_curves
from mmrank.pictures.figures import new_panels, save, shorten
from mmrank.pictures.names import best_cells
from mmrank.pictures.palette import colour, dash
from mmrank.pictures.tables import console_table, markdown_table

# K of the Recall@K curve, about evenly spaced on a logarithmic axis.
_CUTOFFS = 60


@dataclass(frozen=True)
class RetrievalResult:
    """One model."""

    name: str  # Name of the model
    metrics: dict[str, float]  # ``mAP``, ``R_precision``, ``MAP_at_R`` and ``recall@K`` in [0, 1]
    queries: int  # Queries with a positive
    queries_without_positive: int  # Queries that the means leave out
    gallery_size: int  # Samples in the gallery
    recall: np.ndarray  # (T,) recall thresholds of the precision-recall curve
    precision: np.ndarray  # (T,) mean interpolated precision
    cutoffs: list[int]  # The K of the Recall@K curve
    recall_at: list[float]  # Recall@K at these
    average_precision: np.ndarray  # (Q,) per query, NaN without a positive
    num_positives: np.ndarray  # (Q,) per query


def evaluate_features(
    name: str, features: RetrievalFeatures, *, recall_at: Sequence[int] = (1, 10, 100, 1000)
) -> RetrievalResult:
    """Compute all figures and curves in one pass over the gallery."""
    rows = features.rows_of_gallery()
    size = rows.numel() - int(features.in_gallery is None)
    recall_at = [k for k in recall_at if k <= size]
    curves = retrieval_curves(*features.sets())
    figures = curves.figures
    summary = figures.summary(recall_at)
    queries = summary.pop('queries')
    without = summary.pop('queries_without_positive')
    if queries == 0:
        raise UserError(
            f'{name}: none of {without} queries has another sample of its class among {size} of '
            'the gallery. Fix: check labels and in_gallery of the features.'
        )
    cutoffs = np.unique(np.geomspace(1, min(size, max(recall_at)), _CUTOFFS).round())
    cutoffs = cutoffs.astype(int).tolist()
    return RetrievalResult(
        name=name,
        metrics=summary,
        queries=queries,
        queries_without_positive=without,
        gallery_size=rows.numel(),
        recall=curves.recall.cpu().numpy(),
        precision=curves.mean_precision().cpu().numpy(),
        cutoffs=cutoffs,
        recall_at=recall_curve(figures, cutoffs),
        average_precision=figures.average_precision.cpu().numpy(),
        num_positives=figures.num_positives.cpu().numpy(),
    )


def check_same_test_set(models: dict[str, RetrievalFeatures]) -> None:
    """Check that models were evaluated on the same samples in one order."""
    first_name, first = next(iter(models.items()))
    for name, other in models.items():
        if not first.labels.equal(other.labels):
            raise UserError(
                f'{name!r} has {len(other.labels)} samples with other labels than the '
                f'{len(first.labels)} of {first_name!r}. Fix: test both on the same data set, '
                'without shuffling.'
            )
        one = first.in_gallery
        two = other.in_gallery
        if (one is None) != (two is None) or (one is not None and not one.equal(two)):
            what = f'{name!r} has another gallery than {first_name!r}'
            raise UserError(what, 'set the same gallery_key in both configs.')


_TITLES = {'mAP': 'mAP', 'R_precision': 'R-Precision', 'MAP_at_R': 'MAP@R'}


def _cells(
    results: Sequence[RetrievalResult],
) -> tuple[list[str], list[list[str]], list[list[bool]]]:
    """Text of the table in percent, and which cells are best."""
    columns = [[r.name for r in results]]
    marks = [[False] * len(results)]
    for name in results[0].metrics:
        values = [r.metrics[name] for r in results]
        columns.append([f'{100 * v:.2f}' for v in values])
        marks.append(best_cells(columns[-1], values))
    header = ['method', *(_TITLES.get(x, x.replace('recall@', 'R@')) for x in results[0].metrics)]
    return header, [list(row) for row in zip(*columns)], [list(row) for row in zip(*marks)]


def write_retrieval_table(
    results: Sequence[RetrievalResult], folder: str | os.PathLike, console: Console
) -> list[Path]:
    """Print a table, the best bold; write ``retrieval.md`` (percent), ``.csv`` (unrounded)."""
    folder = Path(folder)
    first = results[0]
    text = f'{first.queries:,} queries in a gallery of {first.gallery_size:,}'
    if first.queries_without_positive:
        text += f'; {first.queries_without_positive:,} queries without a positive are left out'
    cells = _cells(results)
    console.print(f'{text}.', highlight=False, soft_wrap=True)
    console.print(console_table(*cells, title='retrieval, %'))
    lines = ['# Retrieval', '', *markdown_table(*cells), '', f'Percent. {text}.']
    markdown = folder / 'retrieval.md'
    write_atomically(('\n'.join(lines) + '\n').encode(), markdown)
    rows = [['method', *results[0].metrics, 'queries', 'gallery_size']]
    rows += [[r.name, *r.metrics.values(), r.queries, r.gallery_size] for r in results]
    return [markdown, write_csv_atomically(rows, folder / 'retrieval.csv')]


def plot_curves(results: Sequence[RetrievalResult], folder: str | os.PathLike) -> list[Path]:
    """Draw ``precision_recall.png`` and ``recall_at_k.png``, a curve for each model."""
    axis = _curves(
        [f'mAP {100 * r.metrics["mAP"]:.2f}' for r in results],
        results,
        # Between two thresholds the interpolated precision is the later.
        [(r.recall, r.precision, dict(drawstyle='steps-pre')) for r in results],
    )
    axis.set(xlim=(0, 1), ylim=(0, 1), xlabel='recall', ylabel='precision, mean over queries')
    paths = [save(axis.figure, Path(folder) / 'precision_recall.png')]
    axis = _curves(
        [f'R@1 {100 * r.recall_at[0]:.2f}' for r in results],
        results,
        [(r.cutoffs, r.recall_at, {}) for r in results],
    )
    last = max(result.cutoffs[-1] for result in results)
    axis.set(xscale='log', xlim=(1, max(last, 2)), xlabel='K', ylabel='Recall@K')
    # From the tenth below: differences near 1 are the interesting ones.
    lowest = min(result.recall_at[0] for result in results)
    axis.set_ylim(int(min(lowest, 0.9) * 10) / 10, 1)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f'{x:,.0f}'))
    return [*paths, save(axis.figure, Path(folder) / 'recall_at_k.png')]


def _curves(figures: Sequence[str], results: Sequence[RetrievalResult], lines: Sequence) -> Axes:
    """One panel with a line for each model, and its name and figure above."""
    figure, ((axis,),) = new_panels(1, 1, 5.2, 4.6)
    for index, (text, result, (x, y, style)) in enumerate(zip(figures, results, lines)):
        label = f'{shorten(result.name, 32)} ({text})'
        look = dict(style, color=colour(index), linestyle=dash(index), label=label)
        # A precision of 1 is not to be cut by the frame.
        axis.plot(x, y, linewidth=1.8, clip_on=False, zorder=3, **look)
    # Above the axes: inside, it would cover curves of some models.
    place = dict(loc='outside upper left', fontsize=9, frameon=False, handlelength=3)
    figure.legend(*axis.get_legend_handles_labels(), **place)
    return axis
