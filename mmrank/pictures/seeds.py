"""Pictures of a comparison over seeds: box plots, a metric by a setting, a forest of many sets."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from mmrank.pictures.figures import fit_two_lines, new_grid, new_panels, save
from mmrank.pictures.names import metric_name
from mmrank.pictures.palette import colour

_COLUMNS = 3
# Inches: 800 pixels of a page, at two dots a pixel.
_WIDTH = 8.0
_DPI = 200
_FONT = 10
#: Figures by method, metric and seed.
Values = Mapping[str, Mapping[str, Mapping[int, float]]]
#: A difference, and where there is an interval of 95 % its ends ``ci_low`` and ``ci_high``.
Gain = Mapping[str, float]
#: Metric values over seeds, by method and value of the setting.
SettingRuns = Mapping[str, Mapping[float, Sequence[float]]]


def draw_box_plot(
    values: Values,
    metrics: Sequence[str],
    path: str | os.PathLike,
    data: str = 'Test data',
    unit: str = 'seed',
    *,
    labels: Mapping[str, str] | None = None,
    colours: Mapping[str, str] | None = None,
) -> Path:
    """Draw a lying box per method with each seed as a dot, a panel per metric, best on top.

    The title says that the figures are of ``data``, paired by ``unit``.
    """

    def place(name: str) -> tuple[bool, float]:
        numbers = list(values[name][metrics[0]].values())
        return not numbers, -float(np.median(numbers or [0.0]))

    names = sorted(values, key=place)
    labels = labels or {name: name for name in names}
    colours = colours or {name: colour(index) for index, name in enumerate(values)}
    columns = 2 if len(metrics) == 4 else min(_COLUMNS, len(metrics))
    height = 0.9 + 0.27 * len(names)
    figure, axes = new_grid(len(metrics), columns, _WIDTH / columns, height)
    for index, (axis, metric) in enumerate(zip(axes, metrics)):
        data_of = [list(values[name][metric].values()) for name in names]
        _draw_panel(axis, data_of, [colours[name] for name in names])
        # The names take their place from the first panel of a row.
        shown = ['' if index % columns else labels[name] for name in names]
        axis.set_yticks(range(len(names)), shown)
        axis.tick_params(labelsize=_FONT)
        words = fit_two_lines(metric_name(metric), 0.8 * _WIDTH / columns, 10)
        axis.set_title('\n'.join([*words, '(higher is better)']), size=10)
    counts = {len(values[name][metrics[0]]) for name in names}
    seeds = ' to '.join(map(str, sorted({min(counts), max(counts)})))
    figure.suptitle(
        f'{data}, {seeds} {unit}{"" if counts == {1} else "s"}: a dot '
        'each; the line in a box is the median',
        fontsize=_FONT,
    )
    return save(figure, path, dpi=_DPI)


def _draw_panel(axis: Axes, data: list[list[float]], colours: Sequence[str]) -> None:
    style = dict(widths=0.6, patch_artist=True, medianprops={'color': 'black', 'linewidth': 1.5})
    place = dict(positions=range(len(data)), orientation='horizontal')
    drawn = axis.boxplot(data, showfliers=False, **place, **style)
    for place, (box, numbers, shade) in enumerate(zip(drawn['boxes'], data, colours)):
        box.set(facecolor=shade, alpha=0.3)
        # Spread over the box so that equal values stay visible.
        shift = np.linspace(-0.2, 0.2, len(numbers) + 2)[1:-1]
        axis.scatter(
            numbers, place + shift, s=20, c=shade, edgecolor='black', linewidth=0.5, zorder=3
        )
    # Not by the limits of the data: a method without any keeps its row.
    axis.set_ylim(len(data) - 0.5, -0.5)
    axis.locator_params(axis='x', nbins=5, min_n_ticks=3)
    axis.grid(axis='y', visible=False)


def plot_setting(
    runs: SettingRuns,
    path: str | os.PathLike,
    *,
    setting: str,
    metric: str,
    mark: float | None = None,
) -> Path:
    """Draw mean and standard deviation over seeds against a setting, on a logarithmic axis."""
    figure, ((axis,),) = new_panels(1, 1, 5.2, 3.4)
    every = sorted({x for by_setting in runs.values() for x in by_setting})
    for index, (method, by_setting) in enumerate(runs.items()):
        x = np.array(sorted(by_setting))
        values = [by_setting[value] for value in x]
        means = [np.mean(v) for v in values]
        stds = [np.std(v, ddof=1) if len(v) > 1 else math.nan for v in values]
        # A little apart, so that no bar hides another.
        x = x * (1 + 0.02 * (index - (len(runs) - 1) / 2))
        style = dict(color=colour(index), marker='os^Dv*'[index % 6], capsize=3, linewidth=1.4)
        axis.errorbar(x, means, stds, label=method, **style)
    if mark is not None:
        axis.axvline(mark, color='0.5', linestyle=':', label=f'{mark:g}')
    axis.set_xscale('log')
    axis.set_xticks(every, [f'{x:g}' for x in every])
    axis.minorticks_off()
    axis.set_xlabel(setting)
    axis.set_ylabel(metric_name(metric))
    axis.legend(fontsize=8, frameon=False)
    return save(figure, path)


def draw_forest(
    gains: Mapping[str, Mapping[str, Gain]],
    means: Mapping[str, Gain],
    path: str | os.PathLike,
    *,
    ours: str,
    metric: str,
) -> Path:
    """Draw a panel for each other method and a row for each set, the largest gains on top.

    ``gains`` are what method ``ours`` gains, by other method and set; ``means`` are their means
    over the sets, a diamond below.
    """
    sets = [*next(iter(gains.values()))]
    average = {name: np.mean([own[name]['difference'] for own in gains.values()]) for name in sets}
    order = sorted(sets, key=lambda name: -average[name])
    # A set of few objects has an interval that would hide the others: it is cut off.
    shown = [gain['difference'] for own in gains.values() for gain in own.values()]
    shown += [end for mean in means.values() for end in _middle_and_ends(mean)]
    space = 0.1 * (max(shown) - min(shown)) or 1.0
    limits = (min(0.0, *shown) - space, max(0.0, *shown) + space)
    width = _WIDTH / len(gains)
    figure, axes = new_panels(1, len(gains), width, 1.5 + 0.25 * len(order))
    for index, (axis, (other, own)) in enumerate(zip(axes[0], gains.items())):
        axis.set_xlim(limits)
        _draw_gains(axis, [own[name] for name in order], means[other])
        # The names take their place from the first panel.
        labels = [''] * (len(order) + 1) if index else [*order, 'mean']
        axis.set_yticks(range(len(labels)), labels)
        lines = fit_two_lines(f'compared with {other}', 0.8 * width, _FONT)
        axis.set_title('\n'.join(lines), size=_FONT)
    figure.supxlabel(f'{metric_name(metric)} that {ours} gains, with 95 %', fontsize=_FONT)
    return save(figure, path, dpi=_DPI)


def _draw_gains(axis: Axes, gains: list[Gain], mean: Gain) -> None:
    axis.axvline(0, color='0.4', linewidth=0.8)
    for row, gain in enumerate(gains):
        if gain['pairs'] > 2:
            # Of two pairs the interval is 13 standard errors wide, and says nothing.
            _, *ends = _middle_and_ends(gain)
            axis.plot(ends, [row, row], color=colour(1), linewidth=1.4)
        axis.plot(gain['difference'], row, 's', color=colour(1), markersize=4)
    row = len(gains)
    middle, low, high = _middle_and_ends(mean)
    axis.fill([low, middle, high, middle], [row, row - 0.3, row, row + 0.3], color=colour(0))
    text = f'{middle:+.1f} [{low:+.1f}, {high:+.1f}]'
    centre = np.mean(axis.get_xlim())
    axis.text(centre, row + 0.9, text, ha='center', va='center', fontsize=_FONT - 1)
    axis.set_ylim(row + 1.4, -0.6)
    axis.tick_params(labelsize=_FONT - 1)
    axis.grid(axis='y', visible=False)


def _middle_and_ends(gain: Gain) -> tuple[float, float, float]:
    """A difference and its interval, which has no width where one seed gives none."""
    middle = gain['difference']
    return middle, gain.get('ci_low', middle), gain.get('ci_high', middle)
