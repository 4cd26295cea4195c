"""Calibration errors before and after, as a table and a picture."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from mmrank.calibration.calibration_file import Calibration
from mmrank.functional import expected_calibration_error, reliability_bins
from mmrank.pictures.tables import write_table

from .reliability_diagram import ReliabilityPanel, plot_reliability
from .splits import JudgedScores, SampleSplit, SplitFigures

_TIMES = ('before', 'after')
#: Bins of the errors.
_BINS = 25


@dataclass(frozen=True)
class CalibrationReport:
    """Figures of one split before and after the map."""

    name: str  # Of the split
    judged: JudgedScores  # Its scores
    probabilities: Tensor  # (n,) float64 of these scores
    before: SplitFigures  # Average precision of the scores
    after: SplitFigures  # Average precision of the probabilities

    @classmethod
    def of(cls, name: str, split: SampleSplit, calibration: Calibration) -> 'CalibrationReport':
        """Judge a split of samples, or a :class:`~calibration.box_split.BoxSplit`."""
        judged = split.judged
        probabilities = calibration.probabilities(judged.scores, judged.labels)
        after = split.figures(calibration)
        return cls(name, judged, probabilities, split.figures(), after)

    def header(self) -> list[str]:
        what = 'boxes' if self.judged.task == 'detection' else 'samples'
        names = [f'{x} {y}' for x in (self._error(), 'AP') for y in _TIMES]
        return ['class', what, 'right', *names]

    def rows(self) -> list[list]:
        """A row for each class and one for all; figures in percent."""
        rows = []
        for label, name in enumerate(self.judged.classes):
            mine = self.judged.labels == label
            aps = (x.by_class[label] for x in (self.before, self.after))
            rows.append(self._row(name, mine, aps))
        means = (self.before.mean, self.after.mean)
        rows.append(self._row('all', self.judged.labels >= 0, means))
        return rows

    def _row(self, name: str, mine: Tensor, aps) -> list:
        scores = self.judged.scores[mine]
        right = self.judged.is_right[mine]
        both = (scores, self.probabilities[mine])
        errors = [expected_calibration_error(x, right, _BINS) for x in both]
        figures = [100 * float(x) for x in (*errors, *aps)]
        return [name, len(scores), int(right.sum()), *figures]

    def _error(self) -> str:
        return 'D-ECE' if self.judged.task == 'detection' else 'ECE'

    def write(self, folder: str | os.PathLike, target: str) -> list[Path]:
        note = f'In percent; {_BINS} bins. A probability means: {target}. {self.verdict()}'
        stem = Path(folder) / self.name
        # NaN: a class without a positive.
        rows = [['n/a' if x != x else x for x in row] for row in self.rows()]
        align = 'l' + 'r' * (len(self.header()) - 1)
        title = f'Calibration of the {self.name} split'
        files = write_table(self.header(), rows, stem, title, note, align)
        return [*files, plot_reliability(self.panels(), stem.with_suffix('.png'))]

    def verdict(self) -> str:
        if self.before.equals(self.after):
            return 'AP of every class is the same to the last bit.'
        return (
            'AP has changed: the scores have lost digits on the way, or the evaluation ranks '
            'several classes together.'
        )

    def panels(self) -> list[ReliabilityPanel]:
        """All classes together, then each, those with most scores first."""
        counts = np.bincount(self.judged.labels.numpy(), minlength=len(self.judged.classes))
        parts = [('all classes', self.judged.labels >= 0)]
        parts += [
            (self.judged.classes[i], self.judged.labels == int(i))
            for i in np.argsort(-counts, kind='stable')
            if counts[i]
        ]
        if len(self.judged.classes) == 1:
            parts = parts[1:]
        axis = 'precision' if self.judged.task == 'detection' else 'share of positives'
        panels = []
        for name, mine in parts:
            right = self.judged.is_right[mine]
            both = (self.judged.scores[mine], self.probabilities[mine])
            bins = (reliability_bins(x, right, _BINS) for x in both)
            panels.append(ReliabilityPanel(name, *bins, self._error(), axis))
        return panels
