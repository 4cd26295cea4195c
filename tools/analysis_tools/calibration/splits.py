"""Scores of a split or of samples and whether they are right, for fitting and judging."""

import io
import os
import pickle
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrank.calibration.calibration_file import Calibration
from mmrank.errors import UserError
from mmrank.evaluation.average_precision_metric import class_figures
from mmrank.models.heads.sample_fields import one_vs_rest_targets


@dataclass(frozen=True)
class JudgedScores:
    """All scores of a split; what crowds cover is left out."""

    task: str  # ``'detection'`` or ``'classification'``
    classes: tuple[str, ...]  # Names of the classes, in the order of the model
    scores: Tensor  # (n,) float32 in [0, 1]
    labels: Tensor  # (n,) int64 class of each score
    is_right: Tensor  # (n,) bool: whether the box matches an object, or the sample has the class


@dataclass(frozen=True)
class SplitFigures:
    """Average precision of a split."""

    by_class: np.ndarray  # (C,) AP in [0, 1], NaN for a class without positives
    mean: float  # Over the classes that have it
    details: tuple[np.ndarray, ...]  # All numbers that must not change, of any shape

    def equals(self, other: 'SplitFigures') -> bool:
        """Whether all numbers are the same, to the last bit."""
        return all(one.tobytes() == two.tobytes() for one, two in zip(self.details, other.details))


def as_float32(scores: np.ndarray, labels: np.ndarray, where: str) -> Tensor:
    """Scores as the model has given them."""
    scores = np.asarray(scores, np.float64)
    if scores.size and not ((scores >= 0) & (scores <= 1)).all():
        what = f'scores of the {where} are from {scores.min():g} to {scores.max():g}'
        fix = 'calibrate a model whose scores are sigmoids, as cosines and inner products are not'
        raise UserError(f'{what}, and must be in [0, 1]', fix)
    short = scores.astype(np.float32)
    given, kept = (np.unique(np.stack([labels, x]), axis=1).shape[1] for x in (scores, short))
    if given != kept:
        what = f'scores of the {where} have more digits than float32'
        fix = 'pass the scores that the model gave, as mmrank test writes them'
        raise UserError(f'{what}: some would tie, and average precision change', fix)
    return torch.from_numpy(short)


#: How far the scores of a sample that are a softmax are from a sum of 1.
_SUM = 1e-4


@dataclass(frozen=True)
class SampleSplit:
    """Scores of a classifier and the classes of the samples."""

    scores: Tensor  # (n, C) float32 in [0, 1]
    is_positive: Tensor  # (n, C) bool
    classes: tuple[str, ...]  # Names of the classes
    names: frozenset = frozenset()  # What tells the samples apart; empty if unknown

    @classmethod
    def read(cls, path: str | os.PathLike, classes: Sequence[str] | None = None) -> 'SampleSplit':
        samples = _read_dump(path)
        scores = torch.stack([torch.as_tensor(x['pred_score']) for x in samples])
        number = scores.size(1)
        names = list(classes or map(str, range(number)))
        if number == 1 and len(names) == 2:
            names = names[1:]  # the rest, and the positive class
        if len(names) != number:
            what = f'the predictions have {number} classes, the model {len(names)}'
            raise UserError(what, 'pass the checkpoint that was tested')
        sums = scores.double().sum(1)
        if number > 1 and bool(((sums - 1).abs() < _SUM).all()):
            what = 'the scores of every sample sum to 1: they are a softmax over the classes'
            fix = 'calibrate one-vs-rest scores, as of mmrank.OneVsRestHead'
            raise UserError(f'{what}, which maps of single classes would break', fix)
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
        number = len(self.classes)
        count = len(self.scores)
        return JudgedScores(
            'classification',
            self.classes,
            self.scores.T.flatten(),
            torch.arange(number).repeat_interleave(count),
            self.is_positive.T.flatten(),
        )

    def figures(self, calibration: Calibration | None = None) -> SplitFigures:
        """Average precision of each class; AUROC is among the details."""
        scores = self.scores
        if calibration is not None:
            scores = calibration.columns(scores)
        ap, area = class_figures(scores, self.is_positive, list(self.classes))
        return SplitFigures(ap.numpy(), float(ap.nanmean()), (ap.numpy(), area.numpy()))

    def same_as(self, other: 'SampleSplit') -> bool:
        if self.names and other.names:
            return not self.names.isdisjoint(other.names)
        return torch.equal(self.scores, other.scores)


def _read_dump(path: str | os.PathLike) -> list[dict]:
    """Read what ``mmrank test --out predictions.pkl`` has written, as data.

    A pickle can call any function when it is read. Here it may only build tensors and containers.
    """
    fix = 'Fix: pass the file that `mmrank test CONFIG CHECKPOINT --out predictions.pkl` writes'
    try:
        with open(path, 'rb') as file:
            samples = _DataReader(file).load()
    except FileNotFoundError as error:
        raise UserError(f'prediction file {str(path)!r} does not exist. {fix}') from error
    except Exception as error:
        raise UserError(
            f'prediction file {str(path)!r} cannot be read as data: '
            f'{type(error).__name__}: {error}. {fix}'
        ) from error
    if not isinstance(samples, list) or not all(
        isinstance(x, dict) and 'pred_score' in x for x in samples
    ):
        raise UserError(
            f'{str(path)!r} holds no predictions of a classifier: each sample needs pred_score. '
            f'{fix}; for a detector the *.bbox.json of its CocoMetric'
        )
    if not samples:
        raise UserError(f'{str(path)!r} has no sample: there is nothing to calibrate. {fix}')
    return samples


def _encode(text: str, codec: str) -> bytes:
    """Stands in for any codec: how old protocols of pickle write bytes."""
    if codec != 'latin1':
        raise pickle.UnpicklingError(f'bytes are written as {codec!r}')
    return text.encode('latin1')


#: All that a dump of tensors, numbers and texts needs.
_CALLED = {
    ('_codecs', 'encode'): _encode,
    ('collections', 'OrderedDict'): OrderedDict,
    ('torch._utils', '_rebuild_tensor_v2'): torch._utils._rebuild_tensor_v2,
    # In place of torch's reader of a storage, which trusts the bytes.
    ('torch.storage', '_load_from_bytes'): lambda x: torch.load(io.BytesIO(x), weights_only=True),
}


class _DataReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _CALLED:
            raise pickle.UnpicklingError(f'it calls {module}.{name}, and predictions are data only')
        return _CALLED[module, name]
