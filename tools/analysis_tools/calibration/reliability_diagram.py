"""Reliability diagrams: mean scores against measured precision."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from mmrank.calibration.calibration_error import ReliabilityBins
from mmrank.pictures.figures import legend_above, new_grid, save, shorten
from mmrank.pictures.palette import colour

_COLUMNS = 3
_LONGEST_NAME = 22
_MOST_PANELS = 12
#: Area of the marker of a bin that has all scores, in points squared.
_AREA = 130.0
_LEAST_AREA = 3.0


@dataclass(frozen=True)
class ReliabilityPanel:
    """Bins of the scores of one class as they are, and of their probabilities."""

    name: str
    before: ReliabilityBins
    after: ReliabilityBins
    error: str  # Name of the calibration error
    accuracy: str  # Name of the vertical axis


def plot_reliability(panels: Sequence[ReliabilityPanel], path: str | os.PathLike) -> Path:
    """Draw reliability diagrams (DeGroot and Fienberg, 1983); the area grows with the count."""
    panels = panels[:_MOST_PANELS]
    columns = 2 if len(panels) == 4 else min(_COLUMNS, len(panels))
    figure, axes = new_grid(len(panels), columns, width=3.2, height=3.2)
    for axis, panel in zip(axes, panels):
        _draw(axis, panel)
        axis.set_xlabel('mean score of a bin')
    for axis in axes[::columns]:
        axis.set_ylabel(panels[0].accuracy)
    legend_above(figure, axes[0], 3)
    return save(figure, path)


def _draw(axis: Axes, panel: ReliabilityPanel) -> None:
    axis.plot([0, 1], [0, 1], color='0.5', linewidth=1, linestyle=':', label='ideal')
    for name, bins, index, shape in (
        ('before', panel.before, 1, 'o'),
        ('after', panel.after, 0, 's'),
    ):
        full = bins.count > 0
        x = bins.confidence[full].numpy()
        y = bins.accuracy[full].numpy()
        share = (bins.count[full].double() / bins.count.sum()).numpy()
        axis.plot(x, y, color=colour(index), linewidth=0.8, alpha=0.4)
        style = dict(color=colour(index), alpha=0.75, marker=shape, linewidths=0, clip_on=False)
        area = _LEAST_AREA + _AREA * np.sqrt(share)
        axis.scatter(x, y, s=area, label=name, zorder=3, **style)
    errors = [100 * float(x.error) for x in (panel.before, panel.after)]
    axis.set_title(
        f'{shorten(panel.name, _LONGEST_NAME)}\n{panel.error} '
        f'{errors[0]:.1f} % before, {errors[1]:.1f} % after',
        fontsize=8.5,
        loc='left',
    )
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect='equal')
