"""Calibration errors before and after, as a table and as reliability diagrams."""

from pathlib import Path

import numpy as np
from rich.console import Console
from torch import Tensor

from mmrank.calibration.calibration_file import Calibration
from mmrank.functional import expected_calibration_error, reliability_bins
from mmrank.pictures.figures import legend_above, new_grid, save, shorten
from mmrank.pictures.palette import colour
from mmrank.pictures.tables import console_table, write_table

from .splits import JudgedScores, SampleSplit

#: Bins of the errors.
_BINS = 25
_LONGEST_NAME = 22
_MOST_PANELS = 12
#: Area of the marker of a bin that has all scores, in points squared.
_AREA = 130.0
_LEAST_AREA = 3.0


def report(name: str, split: SampleSplit, calibration: Calibration, folder: Path) -> list[Path]:
    """Print figures of a split before and after the maps; write them, and draw the diagrams.

    ``split`` has samples, or is a :class:`~calibration.box_split.BoxSplit`.
    """
    judged = split.judged
    probabilities = calibration.probabilities(judged.scores, judged.labels)
    before = split.figures()
    after = split.figures(calibration)
    error, what = ('D-ECE', 'boxes') if judged.task == 'detection' else ('ECE', 'samples')
    header = ['class', what, 'right']
    header += [f'{figure} {time}' for figure in (error, 'AP') for time in ('before', 'after')]
    parts = [(x, judged.labels == label) for label, x in enumerate(judged.classes)]
    parts.append(('all', judged.labels >= 0))
    rows = []
    for (part, mine), aps in zip(
        parts, [*zip(before.by_class, after.by_class), (before.mean, after.mean)]
    ):
        right = judged.is_right[mine]
        both = (judged.scores[mine], probabilities[mine])
        errors = [expected_calibration_error(x, right, _BINS) for x in both]
        figures = [100 * float(x) for x in (*errors, *aps)]
        rows.append([part, len(right), int(right.sum()), *figures])
    verdict = 'AP of every class is the same to the last bit.'
    if not before.equals(after):
        verdict = (
            'AP has changed: the scores have lost digits on the way, or the evaluation ranks '
            'several classes together.'
        )
    shown = [[f'{x:.2f}' if isinstance(x, float) else x for x in row] for row in rows]
    Console().print(console_table(header, shown, title=f'{name} split, in percent'))
    print(verdict)
    # NaN: a class without a positive.
    rows = [['n/a' if x != x else x for x in row] for row in rows]
    note = f'In percent; {_BINS} bins. A probability means: {calibration.target}. {verdict}'
    title = f'Calibration of the {name} split'
    files = write_table(header, rows, folder / name, title, note, 'l' + 'r' * (len(header) - 1))
    return [*files, plot_reliability(judged, probabilities, error, folder / f'{name}.png')]


def plot_reliability(judged: JudgedScores, probabilities: Tensor, error: str, path: Path) -> Path:
    """Draw reliability diagrams (DeGroot and Fienberg, 1983); the area grows with the count.

    All classes together come first, then each, those with most scores first.
    """
    counts = np.bincount(judged.labels.numpy(), minlength=len(judged.classes))
    order = [int(i) for i in np.argsort(-counts, kind='stable') if counts[i]]
    panels = [(judged.classes[i], judged.labels == i) for i in order]
    if len(judged.classes) > 1:
        panels.insert(0, ('all classes', judged.labels >= 0))
    panels = panels[:_MOST_PANELS]
    columns = 2 if len(panels) == 4 else min(3, len(panels))
    figure, axes = new_grid(len(panels), columns, width=3.2, height=3.2)
    for axis, (name, mine) in zip(axes, panels):
        axis.plot([0, 1], [0, 1], color='0.5', linewidth=1, linestyle=':', label='ideal')
        errors = []
        for label, values, index, shape in (
            ('before', judged.scores, 1, 'o'),
            ('after', probabilities, 0, 's'),
        ):
            bins = reliability_bins(values[mine], judged.is_right[mine], _BINS)
            errors.append(100 * float(bins.error))
            full = bins.count > 0
            x = bins.confidence[full].numpy()
            y = bins.accuracy[full].numpy()
            share = (bins.count[full].double() / bins.count.sum()).numpy()
            axis.plot(x, y, color=colour(index), linewidth=0.8, alpha=0.4)
            style = dict(color=colour(index), alpha=0.75, marker=shape, linewidths=0, clip_on=False)
            area = _LEAST_AREA + _AREA * np.sqrt(share)
            axis.scatter(x, y, s=area, label=label, zorder=3, **style)
        axis.set_title(
            f'{shorten(name, _LONGEST_NAME)}\n{error} '
            f'{errors[0]:.1f} % before, {errors[1]:.1f} % after',
            fontsize=8.5,
            loc='left',
        )
        axis.set(xlim=(0, 1), ylim=(0, 1), aspect='equal', xlabel='mean score of a bin')
    for axis in axes[::columns]:
        axis.set_ylabel('precision' if judged.task == 'detection' else 'share of positives')
    legend_above(figure, axes[0], 3)
    return save(figure, path)
