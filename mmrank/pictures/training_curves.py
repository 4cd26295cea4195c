"""Curves of what mmengine logs in a training: losses, rates, metrics."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from mmrank.errors import UserError
from mmrank.files import read_text
from mmrank.pictures.figures import legend_above, new_grid, save, shorten
from mmrank.pictures.palette import colour, dash

#: File of mmengine's local visualisation backend.
_FILE = 'scalars.json'
#: Keys that tell the place of a line and have no curve.
_PLACES = ('step', 'iter', 'epoch')


@dataclass
class _TrainingLog:
    """Scalars that a training has logged, by step.

    The step is the iteration, for metrics of an epoch-based validation the epoch.
    """

    name: str
    curves: dict[str, dict[int, float]] = field(default_factory=dict)


def read_scalars(file: str | os.PathLike) -> Iterator[dict]:
    """Yield the lines of a ``scalars.json`` but a torn one, which a killed training leaves.

    A UserError says that the file cannot be read, or a line has no step.
    """
    lines = read_text(file, 'log', 'pass another folder').splitlines()
    for number, line in enumerate(filter(str.strip, lines), 1):
        try:
            scalars = json.loads(line)
        except ValueError:
            continue
        if not isinstance(scalars, Mapping) or 'step' not in scalars:
            what = f'{file}, line {number}: {line[:60]!r} has no step'
            raise UserError(what, f'pass a {_FILE} that mmengine has written')
        yield scalars


def read_training_logs(path: str | os.PathLike, name: str | None = None) -> list[_TrainingLog]:
    """Read the scalars of a folder: a log for each training that was started in it, in turn.

    A resume goes on with the log of the start before it; its values count. ``path`` is a work
    folder, the folder of one start in it, or a ``scalars.json`` file; ``name`` is by default the
    name of the folder, to which all but the last training add when they were started.
    """
    path = Path(path)
    name = name or path.absolute().name
    # Folders of one start are named by its time.
    files = [path] if path.is_file() else sorted(path.rglob(_FILE))
    if not files:
        what = f'{path} has no {_FILE}'
        fix = 'pass the work folder of a training (work_dirs/<name of the config>), or such a file'
        raise UserError(what, fix)
    logs: list[_TrainingLog] = []
    last = math.inf
    for file in files:
        curves: dict[str, dict[int, float]] = {}
        first = math.inf
        for scalars in read_scalars(file):
            if 'iter' in scalars:  # no validation
                first = min(first, scalars['step'])
            for key, value in scalars.items():
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                if key not in _PLACES and is_number:
                    curves.setdefault(key, {})[scalars['step']] = float(value)
        # A new training logs the first step again, a resume one behind it.
        if logs and (first > last or first == math.inf):
            for key, values in curves.items():
                logs[-1].curves.setdefault(key, {}).update(values)
        elif curves:
            logs.append(_TrainingLog(f'{name}, {file.parent.parent.name}', curves))
            last = first
    if not logs:
        raise UserError(f'{path} has no scalars yet. Fix: train longer')
    logs[-1].name = name
    return logs


def plot_training_curves(
    logs: Sequence[_TrainingLog], path: str | os.PathLike, patterns: Sequence[str]
) -> Path:
    """Draw a panel for each scalar, with a curve for each training.

    The scalars are those of patterns with ``*`` and ``?``, in this order; a UserError without any.
    """
    logged = list(dict.fromkeys(key for log in logs for key in log.curves))
    keys = []
    for pattern in patterns:
        found = [key for key in logged if fnmatchcase(key, pattern)]
        if not found:
            raise UserError(f'no scalar is named {pattern!r}. Fix: take one of {", ".join(logged)}')
        keys += [key for key in found if key not in keys]
    columns = min(3, len(keys))
    figure, axes = new_grid(len(keys), columns)
    for axis, key in zip(axes, keys):
        for index, log in enumerate(logs):
            steps = sorted(log.curves.get(key, {}))
            axis.plot(
                steps,
                [log.curves[key][step] for step in steps],
                label=shorten(log.name, 32),
                color=colour(index),
                linestyle=dash(index),
                marker='o' if len(steps) < 30 else None,
                markersize=3,
            )
        axis.set_title(shorten(key, 40), fontsize=9)
        axis.set_xlabel('step')
    if len(logs) > 1:
        legend_above(figure, axes[0], min(len(logs), 3))
    return save(figure, path)
