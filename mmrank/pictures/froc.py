"""Free-response curves of detectors: recall by false alarms an image, and figures on them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mmrank.evaluation.operating_points import Matches, figures_of, froc, pool
from mmrank.pictures.figures import legend_above, new_grid, save, shorten
from mmrank.pictures.palette import colour, dash

_COLUMNS = 3
# Longer class names do not fit over a panel.
_LONGEST_NAME = 22
_ALL = 'all classes'

#: Matches by model and class.
AllMatches = Mapping[str, Mapping[Any, Matches]]


def with_all(models: AllMatches, names: Mapping[Any, str]) -> dict[str, dict[str, Matches]]:
    """Matches by model and name: all classes first, then the classes, the most frequent first."""
    first = next(iter(models.values()))
    order = sorted(first, key=lambda x: -first[x].num_objects)
    return {
        model: {_ALL: pool(own.values()), **{names[x]: own[x] for x in order}}
        for model, own in models.items()
    }


def froc_rows(
    models: Mapping[str, Mapping[str, Matches]], figures: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Header and rows: figures in percent and their scores, a model a column."""
    rows = []
    for name, matches in next(iter(models.values())).items():
        rows.append([f'{name}: objects', *[str(matches.num_objects)] * len(models)])
        found = [figures_of(own[name], figures) for own in models.values()]
        for figure in figures:
            points = [x[figure] for x in found]
            cells = [f'{100 * value:.1f} at {score:.3g}' for value, score in points]
            rows.append([f'{name}: {figure}', *(x.replace('nan', 'n/a') for x in cells)])
    return ['% at score', *models], rows


def plot_froc(
    models: Mapping[str, Mapping[str, Matches]],
    path: str | os.PathLike,
    mark: str = 'f1',
    max_panels: int = 12,
) -> Path:
    """Draw the curves of several models; a dot is where each reaches the figure ``mark``."""
    first = next(iter(models.values()))
    panels = [x for x in first if first[x].num_objects][:max_panels] or [_ALL]
    figure, axes = new_grid(len(panels), _COLUMNS, 3.4, 3.0)
    for axis, name in zip(axes, panels):
        for index, (model, matches) in enumerate(models.items()):
            curve = froc(matches[name])
            least = 0.5 / max(matches[name].num_images, 1)  # none, on a logarithmic axis
            alarms = np.maximum(curve.false_alarms, least)
            style = dict(color=colour(index), linestyle=dash(index), linewidth=1.8)
            axis.plot(alarms, curve.recall, drawstyle='steps-post', label=model, **style)
            score = figures_of(matches[name], [mark])[mark][1]
            at = curve.scores == score
            axis.plot(alarms[at], curve.recall[at], 'o', color=colour(index))
        axis.set(xscale='log', ylim=(0, 1.02), xlabel='false alarms an image', ylabel='recall')
        count = first[name].num_objects
        axis.set_title(f'{shorten(name, _LONGEST_NAME)} ({count} objects)', fontsize=9)
    legend_above(figure, axes[0], min(4, len(models)))
    return save(figure, path, dpi=110)
