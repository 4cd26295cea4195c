"""The picture of a comparison over seeds."""

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .plan import SeedPlan
from .statistics import Values

_COLUMNS = 3


def draw_box_plot(plan: SeedPlan, values: Values, path: str | Path) -> None:
    """Draw a box per method with each seed as a dot, a panel per metric.

    Boxes lie, with the first method on top, so that the names of many methods
    never overlap; they are at the first panel of each row.

    Args:
        plan: The plan.
        values: From :func:`mmrank.studies.seeds.statistics.collect_values`.
        path: PNG file to write.
    """
    names = [method.name for method in plan.methods]
    rows = math.ceil(len(plan.metrics) / _COLUMNS)
    columns = math.ceil(len(plan.metrics) / rows)
    # The names take their place from the first panel of a row.
    aside = 0.09 * max(map(len, names))
    height = 1.4 + 0.32 * len(names)
    figure = Figure(
        figsize=(3.6 * columns + aside, height * rows + 0.4),
        layout='constrained',
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for index, (axis, metric) in enumerate(zip(axes, plan.metrics)):
        _draw_panel(axis, [values[name][metric] for name in names])
        labels = names if index % columns == 0 else [''] * len(names)
        axis.set_yticks(range(len(names)), labels)
        better = 'lower' if plan.is_lower_better(metric) else 'higher'
        axis.set_title(f'{metric}\n({better} is better)', fontsize=10)
    for axis in axes[len(plan.metrics) :]:
        axis.set_axis_off()
    seeds = 'one seed' if len(plan.seeds) == 1 else f'{len(plan.seeds)} seeds'
    figure.suptitle(f'Test data, {seeds}: box and single seeds', fontsize=11)
    figure.savefig(path, dpi=130)


def _draw_panel(axis: Axes, methods: list[dict[int, float]]) -> None:
    data = [list(seeds.values()) for seeds in methods]
    boxes = axis.boxplot(
        data,
        positions=range(len(data)),
        orientation='horizontal',
        widths=0.55,
        showfliers=False,
        patch_artist=True,
        medianprops={'color': 'black'},
    )
    for place, (box, numbers) in enumerate(zip(boxes['boxes'], data)):
        colour = f'C{place % 10}'
        box.set(facecolor=colour, alpha=0.25)
        # Spread over the box so that equal values stay visible.
        shift = np.linspace(-0.15, 0.15, len(numbers) + 2)[1:-1]
        axis.scatter(
            numbers,
            place + shift,
            s=22,
            color=colour,
            edgecolor='black',
            linewidth=0.5,
            zorder=3,
        )
    # Not by the limits of the data: a method without any keeps its row.
    axis.set_ylim(len(data) - 0.5, -0.5)
    axis.locator_params(axis='x', nbins=6)
    axis.grid(axis='x', alpha=0.3)
    axis.spines[['top', 'right']].set_visible(False)
