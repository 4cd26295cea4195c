"""The file that holds a map from score to probability for each class."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from mmrank.errors import UserError
from mmrank.files import write_atomically
from mmrank.tensors import check_index, shares

from .monotone_map import interpolated_map

_FORMAT = 'mmrank calibration 1'
#: What reading a damaged file raises: a number may be too large, a list too deep.
_DAMAGE = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class ClassMap:
    """The map of one class: knots, between which it is linear."""

    name: str  # Of the class
    count: int  # Scores that it was fitted on
    positives: int  # How many of them are right
    scores: tuple[float, ...]  # Knots; they do not fall
    probabilities: tuple[float, ...]  # At the knots; they do not fall
    pooled: bool = False  # Whether the scores of all classes were taken, since this one has too few


@dataclass(frozen=True)
class Calibration:
    """Maps from score to probability of the classes of one model."""

    task: str  # ``'detection'`` or ``'classification'``
    target: str  # The meaning of a probability, in words
    maps: tuple[ClassMap, ...]  # Of each class, in the order of the model
    weights_sha256: str | None = None  # See :func:`weights_digest`; None if not known
    _tables: dict = field(default_factory=dict, repr=False, compare=False)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(x.name for x in self.maps)

    def probabilities(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(n,) float64 probabilities of (n,) scores in [0, 1], at most 32 bits, of given classes.

        The scores of one class have the order and the ties of their probabilities, exactly:
        see :func:`mmrank.functional.keep_order`. Scores of different classes may change places. On
        a GPU a score outside [0, 1] is a device-side assertion, otherwise a ``UserError``.
        """
        return self._map(scores[:, None], labels)[:, 0]

    def columns(self, scores: Tensor) -> Tensor:
        """(n, C) probabilities of an (n, C) table of scores; see :meth:`probabilities`."""
        if scores.dim() != 2 or scores.size(1) != len(self.maps):
            raise UserError(
                f'scores must be (n, {len(self.maps)}), a column for each of '
                f'{_shown(self.classes)}, got shape {tuple(scores.shape)}',
                'the calibration of this model, or probabilities(scores, labels)',
            )
        labels = torch.arange(len(self.maps), device=scores.device)
        return self._map(scores.T, labels).T

    def _map(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Rows of scores, each by the map of its label."""
        shares('scores', scores, 'calibrate a model whose scores are sigmoids')
        fix = 'the calibration of this model, whose classes are ' + _shown(self.classes)
        check_index('labels', labels, len(self.maps), fix, shape=(len(scores),))
        knots, values = self._table(scores.device)
        return interpolated_map(scores, knots[labels], values[labels])

    def _table(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """(C, K) knots of the maps, and their values."""
        if device not in self._tables:
            longest = max(len(x.scores) for x in self.maps)
            pairs = [
                [y + y[-1:] * (longest - len(y)) for y in (x.scores, x.probabilities)]
                for x in self.maps
            ]
            self._tables[device] = tuple(
                torch.tensor(x, dtype=torch.float64, device=device) for x in zip(*pairs)
            )
        return self._tables[device]

    def check_names(self, names: Sequence[str]) -> None:
        """Raise ``UserError`` if a model has other classes, or in another order."""
        names = tuple(map(str, names))
        if len(names) == 2 and len(self.maps) == 1:
            names = names[1:]  # the rest, and the positive class
        if names != self.classes:
            raise UserError(
                f'the calibration is of the classes {_shown(self.classes)}, the model has '
                f'{_shown(names)}. Fix: use the calibration of this model, or calibrate it'
            )

    def check_weights(self, digest: str) -> None:
        """Raise ``UserError`` if the :func:`weights_digest` of a model differs from a known one."""
        if self.weights_sha256 not in (None, digest):
            raise UserError(
                'the calibration was fitted on the scores of other weights (sha256 '
                f'{self.weights_sha256[:8]}) than the model has ({digest[:8]}): its probabilities '
                'would be wrong. Fix: load the checkpoint that was calibrated, or calibrate this '
                'one'
            )

    def write(self, path: str | os.PathLike) -> Path:
        """Write the calibration as JSON, whole or not at all; returns the path."""
        maps = [asdict(x) for x in self.maps]
        head = {key: getattr(self, key) for key in ('task', 'target', 'weights_sha256')}
        content = dict(format=_FORMAT, **head, maps=maps)
        write_atomically(json.dumps(content, indent=1).encode(), path)
        return Path(path)


def read_calibration(path: str | os.PathLike) -> Calibration:
    """Read a file of :meth:`Calibration.write`; every map has to rise."""
    try:
        content = json.loads(Path(path).read_text('utf-8'))
        if content['format'] != _FORMAT:
            raise ValueError(f'it does not say "format": "{_FORMAT}"')
        maps = tuple(_class_map(x) for x in content['maps'])
        if not maps:
            raise ValueError('it has no maps')
        if content['task'] not in ('detection', 'classification'):
            raise ValueError(f'task {content["task"]!r} is not known')
        digest = content['weights_sha256']
        return Calibration(
            content['task'], str(content['target']), maps, None if digest is None else str(digest)
        )
    except (OSError, *_DAMAGE) as error:
        raise UserError(
            f'{str(path)!r} cannot be read as a calibration file: {type(error).__name__}: {error}',
            'write it with tools/analysis_tools/calibrate.py',
        ) from error


def weights_digest(state: Mapping[str, Tensor]) -> str:
    """SHA-256, in hexadecimal, of a ``state_dict``: its tensors, keys, dtypes and shapes.

    A prefix ``module.`` of the keys does not count.
    """
    digest = hashlib.sha256()
    bare = {key.removeprefix('module.'): x for key, x in state.items()}
    for key in sorted(bare):
        if not isinstance(bare[key], Tensor):
            continue
        value = bare[key].detach().cpu().contiguous()
        digest.update(f'{key} {value.dtype} {tuple(value.shape)}\n'.encode())
        # Through bytes: NumPy has no bfloat16.
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _class_map(node: Mapping) -> ClassMap:
    """Read one map; raises what ``_DAMAGE`` has if it does not rise."""
    known = dict(node, name=str(node['name']))
    for key in {'scores', 'probabilities'} & known.keys():
        known[key] = tuple(map(float, known[key]))
    made = ClassMap(**known)
    rises = len(made.scores) == len(made.probabilities) > 0
    for values in (made.scores, made.probabilities):
        rises &= all(a <= b for a, b in pairwise((0.0, *values, 1.0)))
    if not rises:
        raise ValueError(f'the map of class {made.name!r} does not rise from 0 to 1')
    return made


def _shown(names: Sequence[str]) -> str:
    return ', '.join(names[:6]) + (', ...' if len(names) > 6 else '')
