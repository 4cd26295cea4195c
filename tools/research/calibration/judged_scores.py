"""Scores of a split and whether they are right, for fitting and judging."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from mmrank.calibration.calibration_file import Calibration
from mmrank.errors import UserError


@dataclass(frozen=True)
class JudgedScores:
    """All scores of a split; what crowds cover is left out.

    Attributes:
        task: ``'detection'`` or ``'classification'``.
        classes: Names of the classes, in the order of the model.
        scores: (n,) float32 in [0, 1].
        labels: (n,) int64 class of each score.
        is_right: (n,) bool: whether the box matches an object, or the sample has the class.
        ious: (n,) float64 IoU of a box with its object, 0 for none; for samples as ``is_right``.
    """

    task: str
    classes: tuple[str, ...]
    scores: Tensor
    labels: Tensor
    is_right: Tensor
    ious: Tensor

    def of_class(self, label: int) -> 'JudgedScores':
        """The scores of one class."""
        mine = self.labels == label
        return JudgedScores(
            self.task,
            self.classes,
            self.scores[mine],
            self.labels[mine],
            self.is_right[mine],
            self.ious[mine],
        )


@dataclass(frozen=True)
class SplitFigures:
    """Average precision of a split.

    Attributes:
        by_class: (C,) AP in [0, 1], NaN for a class without positives.
        mean: Over the classes that have it.
        details: All numbers that must not change, of any shape.
    """

    by_class: np.ndarray
    mean: float
    details: tuple[np.ndarray, ...]

    def equals(self, other: 'SplitFigures') -> bool:
        """Whether all numbers are the same, to the last bit."""
        return all(one.tobytes() == two.tobytes() for one, two in zip(self.details, other.details))


class Split(Protocol):
    """Predictions of a split: boxes or samples.

    Attributes:
        judged: Their scores.
    """

    judged: JudgedScores

    def figures(self, calibration: Calibration | None = None) -> SplitFigures:
        """Average precision, of the scores or of their probabilities."""


def as_float32(scores: np.ndarray, labels: np.ndarray, where: str) -> Tensor:
    """Scores as the model has given them."""
    scores = np.asarray(scores, np.float64)
    if scores.size and not ((scores >= 0) & (scores <= 1)).all():
        raise UserError(
            f'scores of the {where} are from {scores.min():g} to '
            f'{scores.max():g}, and must be in [0, 1]. Fix: calibrate a model '
            'whose scores are sigmoids, as cosines and inner products are not'
        )
    short = scores.astype(np.float32)
    pairs = np.stack([labels.astype(np.float64), scores])
    unique = np.unique(pairs, axis=1).shape[1]
    pairs[1] = short
    if np.unique(pairs, axis=1).shape[1] != unique:
        raise UserError(
            f'scores of the {where} have more digits than float32: some would '
            'tie, and average precision change. Fix: pass the scores that the '
            'model gave, as tools/test.py writes them'
        )
    return torch.from_numpy(short)
