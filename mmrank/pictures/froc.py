"""Free-response curves of detectors: recall by false alarms an image."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mmrank.evaluation.operating_points import Matches, figures_of, froc
from mmrank.pictures.figures import legend_above, new_grid, save, shorten
from mmrank.pictures.palette import colour, dash

# Longer class names do not fit over a panel.
_LONGEST_NAME = 22
_MOST_PANELS = 12

#: Matches by model and class; all classes together are one, too.
AllMatches = Mapping[str, Mapping[str, Matches]]


def froc_rows(models: AllMatches, figures: Sequence[str]) -> list[list[str]]:
    """Rows of a table: figures in percent and their scores, a model a column."""
    rows = []
    for name, matches in next(iter(models.values())).items():
        found = [figures_of(own[name], figures) for own in models.values()]
        for figure in figures:
            cells = [f'{100 * x[figure][0]:.1f} at {x[figure][1]:.3g}' for x in found]
            rows.append([name, str(matches.num_objects), figure, *cells])
    return rows


def plot_froc(models: AllMatches, path: str | os.PathLike, mark: str = 'f1') -> Path:
    """Draw the most frequent classes; a dot is where a model reaches the figure ``mark``."""
    first = next(iter(models.values()))
    panels = sorted(first, key=lambda name: -first[name].num_objects)[:_MOST_PANELS]
    figure, axes = new_grid(len(panels), 3, 3.4, 3.0)
    for axis, name in zip(axes, panels):
        for index, (model, matches) in enumerate(models.items()):
            curve = froc(matches[name])
            # A logarithmic axis has no 0.
            alarms = np.maximum(curve.false_alarms, 0.5 / matches[name].num_images)
            style = dict(color=colour(index), linestyle=dash(index), linewidth=1.8)
            axis.plot(alarms, curve.recall, drawstyle='steps-post', label=model, **style)
            at = curve.scores == figures_of(matches[name], [mark])[mark][1]
            axis.plot(alarms[at], curve.recall[at], 'o', color=colour(index))
        axis.set(xscale='log', ylim=(0, 1.02), xlabel='false alarms an image', ylabel='recall')
        title = f'{shorten(name, _LONGEST_NAME)} ({first[name].num_objects} objects)'
        axis.set_title(title, fontsize=9)
    legend_above(figure, axes[0], min(4, len(models)))
    return save(figure, path, dpi=110)
