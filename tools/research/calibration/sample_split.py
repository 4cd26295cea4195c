"""One-vs-rest scores of a split of samples, and their labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mmrank.calibration.calibration_file import Calibration
from mmrank.errors import UserError
from mmrank.evaluation.average_precision_metric import class_figures
from mmrank.models.heads.sample_fields import one_vs_rest_targets

from .judged_scores import JudgedScores, SplitFigures, as_float32

#: How far the scores of a sample that are a softmax are from a sum of 1.
_SUM = 1e-4


@dataclass(frozen=True)
class SampleSplit:
    """Scores of a classifier and the classes of the samples.

    Attributes:
        scores: (n, C) float32 in [0, 1].
        is_positive: (n, C) bool.
        classes: Names of the classes.
        names: What tells the samples apart; empty if unknown.
    """

    scores: Tensor
    is_positive: Tensor
    classes: tuple[str, ...]
    names: frozenset = frozenset()

    @classmethod
    def read(
        cls, samples: Sequence[Mapping], classes: Sequence[str] | None = None
    ) -> 'SampleSplit':
        """Take scores and labels out of a dump."""
        scores = torch.stack([torch.as_tensor(x['pred_score']) for x in samples])
        number = scores.size(1)
        names = list(classes or map(str, range(number)))
        if number == 1 and len(names) == 2:
            names = names[1:]  # the rest, and the positive class
        if len(names) != number:
            raise UserError(
                f'the predictions have {number} classes, the model '
                f'{len(names)}. Fix: pass the checkpoint that was tested'
            )
        sums = scores.double().sum(1)
        if number > 1 and bool(((sums - 1).abs() < _SUM).all()):
            raise UserError(
                'the scores of every sample sum to 1: they are a softmax over the classes, which '
                'maps of single classes would break. Fix: calibrate one-vs-rest scores, as of '
                'mmrank.OneVsRestHead; for a softmax fit one temperature'
            )
        try:
            target = one_vs_rest_targets(samples, number, torch.device('cpu'))
        except ValueError as error:
            raise UserError(f'the predictions cannot be judged: {error}') from (error)
        columns = np.arange(number)[None].repeat(len(scores), 0)
        flat = as_float32(scores.flatten().numpy(), columns.ravel(), 'samples')
        paths = frozenset(x['img_path'] for x in samples if x.get('img_path') is not None)
        return cls(flat.view_as(scores), target > 0, tuple(names), paths)

    @property
    def judged(self) -> JudgedScores:
        """All scores in one list, class by class."""
        right = self.is_positive.T.flatten()
        number, count = len(self.classes), len(self.scores)
        return JudgedScores(
            'classification',
            self.classes,
            self.scores.T.flatten(),
            torch.arange(number).repeat_interleave(count),
            right,
            right.double(),
        )

    def figures(self, calibration: Calibration | None = None) -> SplitFigures:
        """Average precision of each class; AUROC is among the details."""
        scores = self.scores
        if calibration is not None:
            scores = calibration.columns(scores)
        found = class_figures(scores, self.is_positive, list(self.classes))
        return SplitFigures(
            found.ap.numpy(), found.mean_ap, (found.ap.numpy(), found.auroc.numpy())
        )

    def same_as(self, other: 'SampleSplit') -> bool:
        """Whether the other split has samples of this one."""
        if self.names and other.names:
            return not self.names.isdisjoint(other.names)
        return torch.equal(self.scores, other.scores)
