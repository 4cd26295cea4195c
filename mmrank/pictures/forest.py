"""Forest plots: what a method gains on each of many sets, and on average."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from mmrank.pictures.figures import fit_two_lines, new_panels, save
from mmrank.pictures.names import metric_name
from mmrank.pictures.palette import colour

# Inches: 800 pixels of a page, at two dots a pixel.
_WIDTH, _DPI = 8.0, 200
_FONT = 10
#: A difference, and where there is an interval of 95 % its ends ``ci_low`` and ``ci_high``.
Gain = Mapping[str, float]


def draw_forest(
    gains: Mapping[str, Mapping[str, Gain]],
    means: Mapping[str, Gain],
    path: str | os.PathLike,
    *,
    ours: str,
    metric: str,
) -> Path:
    """Draw a panel for each other method and a row for each set, the largest gains on top.

    Args:
        gains: What a method gains, by other method and set.
        means: The mean over the sets, a diamond below, by other method.
        path: PNG to write.
        ours: Name of the method.
        metric: What is measured, for the axis.
    """
    sets = [*next(iter(gains.values()))]
    average = {name: np.mean([own[name]['difference'] for own in gains.values()]) for name in sets}
    order = sorted(sets, key=lambda name: -average[name])
    # A set of few objects has an interval that would hide the others.
    widest = 2 * max(abs(gain['difference']) for own in gains.values() for gain in own.values())
    width = _WIDTH / len(gains)
    figure, axes = new_panels(1, len(gains), width, 1.5 + 0.25 * len(order))
    for index, (axis, (other, own)) in enumerate(zip(axes[0], gains.items())):
        axis.set_xlim(-widest or -1.0, widest or 1.0)
        _draw_panel(axis, [own[name] for name in order], means[other])
        # The names take their place from the first panel.
        labels = [''] * (len(order) + 1) if index else [*order, 'mean']
        axis.set_yticks(range(len(labels)), labels)
        lines = fit_two_lines(f'compared with {other}', 0.8 * width, _FONT)
        axis.set_title('\n'.join(lines), size=_FONT)
    figure.supxlabel(f'{metric_name(metric)} that {ours} gains, with 95 %', fontsize=_FONT)
    return save(figure, path, dpi=_DPI)


def _draw_panel(axis: Axes, gains: list[Gain], mean: Gain) -> None:
    axis.axvline(0, color='0.4', linewidth=0.8)
    for row, gain in enumerate(gains):
        _, *ends = _middle_and_ends(gain)
        axis.plot(ends, [row, row], color=colour(1), linewidth=1.4)
        axis.plot(gain['difference'], row, 's', color=colour(1), markersize=4)
    row = len(gains)
    middle, low, high = _middle_and_ends(mean)
    axis.fill([low, middle, high, middle], [row, row - 0.3, row, row + 0.3], color=colour(0))
    text = f'{middle:+.1f} [{low:+.1f}, {high:+.1f}]'
    axis.text(0, row + 0.9, text, ha='center', va='center', fontsize=_FONT - 1)
    axis.set_ylim(row + 1.4, -0.6)
    axis.tick_params(labelsize=_FONT - 1)
    axis.grid(axis='y', visible=False)


def _middle_and_ends(gain: Gain) -> tuple[float, float, float]:
    """A difference and its interval, which has no width where one seed gives none."""
    middle = gain['difference']
    return middle, gain.get('ci_low', middle), gain.get('ci_high', middle)
