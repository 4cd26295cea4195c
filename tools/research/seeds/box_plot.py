"""The picture of a comparison over seeds."""

import csv
import math
import os
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from mmrank.errors import UserError
from mmrank.visualization.figures import fit_two_lines, new_panels, save
from mmrank.visualization.palette import colours_of, loss_name, metric_name

from .plan import FINAL
from .statistics import Values

_COLUMNS = 3
# Inches: 800 pixels of a page, at two dots a pixel.
_WIDTH, _DPI = 8.0, 200
_FONT = 10


def draw_box_plot(
    values: Values,
    metrics: Sequence[str],
    path: str | os.PathLike,
    *,
    lower_better: Collection[str] = (),
    unit: str = 'seed',
) -> Path:
    """Draw a box per method with each seed as a dot, a panel per metric.

    Boxes lie, so that the names of many methods never overlap. They are
    sorted by the median of the first metric, the best method on top, and
    have the colour of their loss in every picture. The picture is as wide as
    a page: 800 pixels.

    Args:
        values: From :func:`research.seeds.statistics.collect_values`.
        metrics: What to show, the first one decides the order.
        path: PNG file to write.
        lower_better: Those of the metrics of which less is better.
        unit: What a dot is, in the singular: a seed or a fold.

    Returns:
        ``path``.
    """
    names = _sorted(values, metrics[0], metrics[0] in lower_better)
    colours = dict(zip(names, colours_of(names)))
    columns = min(_COLUMNS, len(metrics))
    if len(metrics) == 4:
        columns = 2
    rows = math.ceil(len(metrics) / columns)
    figure, axes = new_panels(rows, columns, _WIDTH / columns, 0.9 + 0.27 * len(names))
    for index, (axis, metric) in enumerate(zip(axes.ravel(), metrics)):
        _draw_panel(axis, [values[name][metric] for name in names])
        for box, name in zip(axis.patches, names):
            box.set(facecolor=colours[name], alpha=0.3)
        for dots, name in zip(axis.collections, names):
            dots.set_facecolor(colours[name])
        # The names take their place from the first panel of a row.
        first = index % columns == 0
        labels = list(map(loss_name, names)) if first else [''] * len(names)
        axis.set_yticks(range(len(names)), labels)
        axis.tick_params(labelsize=_FONT)
        better = 'lower' if metric in lower_better else 'higher'
        words = fit_two_lines(metric_name(metric), 0.8 * _WIDTH / columns, 10)
        axis.set_title('\n'.join([*words, f'({better} is better)']), size=10)
    for axis in axes.ravel()[len(metrics) :]:
        axis.set_axis_off()
    counts = {len(values[name][metrics[0]]) for name in names}
    seeds = ' to '.join(map(str, sorted({min(counts), max(counts)})))
    figure.suptitle(
        f'Test data, {seeds} {unit}{"" if counts == {1} else "s"}: a dot '
        'each; the line in a box is the median',
        fontsize=_FONT,
    )
    return save(figure, path, dpi=_DPI)


def read_values(path: str | os.PathLike, metrics: Sequence[str] = (), scale: float = 1.0) -> Values:
    """Read the final runs of a ``runs.csv``.

    Args:
        path: File of ``tools/benchmarks/run_seeds.py``.
        metrics: Those to read. Empty: all.
        scale: Factor of the values, 100 for percent.

    Returns:
        By method and metric: the value of each seed.

    Raises:
        UserError: If a metric is in no final run.
    """
    found: dict[str, dict[str, dict[int, float]]] = {}
    with open(path, newline='', encoding='utf-8') as file:
        for row in csv.DictReader(file):
            if row['stage'] != FINAL:
                continue
            own = found.setdefault(row['method'], {})
            value = scale * float(row['value'])
            own.setdefault(row['metric'], {})[int(row['seed'])] = value
    known = list(dict.fromkeys(m for own in found.values() for m in own))
    metrics = list(metrics) or known
    missing = [metric for metric in metrics if metric not in known]
    if missing or not known:
        raise UserError(
            f'{path} has no final run with {", ".join(missing) or "a metric"}.'
            f' Fix: pass some of: {", ".join(known) or "none there"}'
        )
    return {
        method: {metric: own.get(metric, {}) for metric in metrics} for method, own in found.items()
    }


def _sorted(values: Values, metric: str, lower_better: bool) -> list[str]:
    """Methods by the median of a metric, those without a value last."""

    def place(name: str) -> tuple[bool, float]:
        numbers = list(values[name][metric].values())
        if not numbers:
            return True, 0.0
        median = float(np.median(numbers))
        return False, median if lower_better else -median

    return sorted(values, key=place)


def _draw_panel(axis: Axes, methods: Sequence[dict[int, float]]) -> None:
    data = [list(seeds.values()) for seeds in methods]
    axis.boxplot(
        data,
        positions=range(len(data)),
        orientation='horizontal',
        widths=0.6,
        showfliers=False,
        patch_artist=True,
        medianprops={'color': 'black', 'linewidth': 1.5},
    )
    for place, numbers in enumerate(data):
        # Spread over the box so that equal values stay visible.
        shift = np.linspace(-0.2, 0.2, len(numbers) + 2)[1:-1]
        axis.scatter(numbers, place + shift, s=20, edgecolor='black', linewidth=0.5, zorder=3)
    # Not by the limits of the data: a method without any keeps its row.
    axis.set_ylim(len(data) - 0.5, -0.5)
    axis.locator_params(axis='x', nbins=5, min_n_ticks=3)
    axis.grid(axis='y', visible=False)
