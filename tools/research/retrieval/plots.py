"""Mean precision-recall curves and Recall@K of several models."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from mmrank.files import write_atomically
from mmrank.visualization.figures import shorten
from mmrank.visualization.palette import colours_of, dash
from research.retrieval.result import RetrievalResult

_LONGEST_NAME = 32


def plot_precision_recall(results: Sequence[RetrievalResult], path: str | os.PathLike) -> Path:
    """Draw a mean precision-recall curve for each model.

    Args:
        results: The models, at least one.
        path: Image file to write; its folder is made if needed.

    Returns:
        ``path``.
    """
    figure, axis = _figure()
    for result, style in zip(results, _styles(results)):
        axis.plot(
            result.recall,
            result.precision,
            label=_label(result, 'mAP', result.metrics['mAP']),
            # Between two thresholds the interpolated precision is the later.
            drawstyle='steps-pre',
            # A precision of 1 is not to be cut by the frame.
            clip_on=False,
            zorder=3,
            **style,
        )
    axis.set(xlim=(0, 1), ylim=(0, 1), xlabel='recall', ylabel='precision, mean over queries')
    return _save(figure, axis, path)


def plot_recall_at_k(results: Sequence[RetrievalResult], path: str | os.PathLike) -> Path:
    """Draw Recall@K over K for each model.

    Args:
        results: The models, at least one.
        path: Image file to write; its folder is made if needed.

    Returns:
        ``path``.
    """
    figure, axis = _figure()
    for result, style in zip(results, _styles(results)):
        axis.plot(
            result.cutoffs,
            result.recall_at,
            label=_label(result, '≈R@1' if result.is_approximate else 'R@1', result.recall_at[0]),
            clip_on=False,
            zorder=3,
            **style,
        )
    last = max(result.cutoffs[-1] for result in results)
    lowest = min(result.recall_at[0] for result in results)
    axis.set_xscale('log')
    axis.set(
        xlim=(1, max(last, 2)),
        # From the tenth below: differences near 1 are the interesting ones.
        ylim=(int(min(lowest, 0.9) * 10) / 10, 1),
        xlabel='K',
        ylabel='Recall@K',
    )
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f'{x:,.0f}'))
    return _save(figure, axis, path)


def write_curves(results: Sequence[RetrievalResult], path: str | os.PathLike) -> Path:
    """Write what the curves show as JSON, by name of the model.

    Args:
        results: The models.
        path: File to write.

    Returns:
        ``path``.
    """
    content = {
        result.name: dict(
            metrics=result.metrics,
            recall=result.recall.tolist(),
            precision=result.precision.tolist(),
            k=result.cutoffs,
            recall_at_k=result.recall_at,
        )
        for result in results
    }
    write_atomically(json.dumps(content, indent=1).encode(), path)
    return Path(path)


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.2, 4.6), layout='constrained')
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    axis.grid(alpha=0.3)
    axis.spines[['top', 'right']].set_visible(False)
    return figure, axis


def _styles(results: Sequence[RetrievalResult]) -> list[dict]:
    colours = colours_of([result.name for result in results])
    return [
        dict(color=own, linestyle=dash(index), linewidth=1.8) for index, own in enumerate(colours)
    ]


def _label(result: RetrievalResult, metric: str, value: float) -> str:
    name = shorten(result.name, _LONGEST_NAME)
    return f'{name} ({metric} {100 * value:.2f})'


def _save(figure: Figure, axis: Axes, path: str | os.PathLike) -> Path:
    # Above the axes: inside, it would cover curves of some models.
    handles, names = axis.get_legend_handles_labels()
    figure.legend(
        handles, names, loc='outside upper left', fontsize=9, frameon=False, handlelength=3
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path
