"""Bar charts of a COCO benchmark, a panel a metric."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mmrank.visualization.figures import shorten
from mmrank.visualization.palette import colours_of
from research.coco.benchmark_table import BenchmarkRow

_COLUMNS = 4
_LONGEST_NAME = 24


def plot_metric_bars(rows: Sequence[BenchmarkRow], path: str | os.PathLike) -> Path:
    """Draw a panel for each metric, in it a bar for each model.

    Speed and memory have panels too where a run measured them. Bars are horizontal and begin at
    zero, so that names and figures never overlap.

    Args:
        rows: The models, all with the same metrics.
        path: Image file to write.

    Returns:
        ``path``.
    """
    panels = _panels(rows)
    grid_rows = math.ceil(len(panels) / _COLUMNS)
    height = 0.75 + 0.28 * len(rows)
    figure = Figure(figsize=(3.0 * _COLUMNS, height * grid_rows + 0.2), layout='constrained')
    FigureCanvasAgg(figure)
    axes = figure.subplots(grid_rows, _COLUMNS, squeeze=False).ravel()
    names = [shorten(row.name, _LONGEST_NAME) for row in rows]
    colours = colours_of([row.name for row in rows])
    for index, (axis, (title, values)) in enumerate(zip(axes, panels)):
        _draw_panel(axis, title, values, colours)
        # Names once a row of panels.
        labels = names if index % _COLUMNS == 0 else [''] * len(names)
        axis.set_yticks(range(len(names)), labels, fontsize=8)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def _panels(rows: Sequence[BenchmarkRow]) -> list[tuple[str, list[float]]]:
    """Titles and values; NaN for a model without a value."""
    panels = [
        (f'{name} (%)', [100 * row.metrics[name] for row in rows]) for name in rows[0].metrics
    ]
    nothing = float('nan')
    records = [row.record for row in rows]
    panels.append(('images/s', [r.images_per_second if r else nothing for r in records]))
    panels.append(
        (
            'memory (MiB)',
            [
                r.memory_bytes / 2**20 if r and r.memory_bytes is not None else nothing
                for r in records
            ],
        )
    )
    return [(t, v) for t, v in panels if not all(map(math.isnan, v))]


def _draw_panel(axis: Axes, title: str, values: list[float], colours: list[str]) -> None:
    """One metric: bars from the top, the figure behind each."""
    largest = max((v for v in values if not math.isnan(v)), default=0.0)
    for index, value in enumerate(values):
        is_known = not math.isnan(value)
        axis.barh(index, value if is_known else 0.0, height=0.7, color=colours[index])
        text = f'{value:,.1f}' if value < 1000 else f'{value:,.0f}'
        axis.text(
            value if is_known else 0.0,
            index,
            f' {text}' if is_known else ' n/a',
            fontsize=8,
            va='center',
        )
    # Room for the figure behind the longest bar.
    axis.set(xlim=(0, 1.3 * largest or 1.0), ylim=(len(values) - 0.5, -0.5))
    axis.set_title(title, fontsize=9)
    axis.tick_params(axis='x', labelsize=7)
    axis.tick_params(axis='y', length=0)
    axis.spines[['top', 'right']].set_visible(False)
    axis.locator_params(axis='x', nbins=4)
