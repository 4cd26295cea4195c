"""Plans of small trainings, each recorded as soon as it ends: a stopped plan goes on where it was.

A plan file has ``data`` (sets by name, or a folder), ``seeds`` and ``methods``, each with a
``name``, optionally ``seeds`` (how many of the plan's it is trained on) and ``sets`` (names of its
data sets), and with what its study reads. ``common`` holds for all methods. ``data_file`` names a
file of sets: a set has what that file says of its name, or of the name ``like``.

``tune`` has a ``grid``, the values to try by setting, and the ``seeds`` to try them on; ``tune`` of
a method adds to its grid, or has other values. The combination with the best mean is then trained
on ``seeds``. A plan without ``seeds`` tries only.
"""

import itertools
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from torch import nn

from mmrank import losses
from mmrank.errors import UserError
from mmrank.experiments.records import FINAL, TUNE, append_rows, current_commit, past_rows

#: What the plan itself reads of a method.
_OF_PLAN = ('name', 'seeds', 'sets', 'tune')


class Record:
    """A record that is gone on with.

    Args:
        path: The CSV file, which need not be there.
        columns: Its columns. A file without the column ``stage`` keeps no trials.
    """

    def __init__(self, path: Path, columns: Iterable[str]) -> None:
        self.path = Path(path)
        self._columns = [*columns]
        self._commit = current_commit()
        #: All rows, as text.
        self.rows = past_rows(path)
        if self.rows and 'stage' not in self.rows[0]:
            self._columns = [name for name in self._columns if name != 'stage']
        past_rows(path, self._columns)  # refuses other metrics

    def rows_of(self, stage: str, method: str) -> list[dict[str, str]]:
        """Rows of a method; without a column ``stage`` all are final."""
        return [
            row for row in self.rows if row['method'] == method and row.get('stage', FINAL) == stage
        ]

    def add(self, rows: Sequence[Mapping]) -> None:
        """Write the rows of a training, all or none; the commit is filled in."""
        rows = [dict(row, commit=self._commit) for row in rows]
        if 'stage' in self._columns or rows[0].get('stage', FINAL) == FINAL:
            append_rows(self.path, rows, self._columns)
        self.rows += [{name: str(value) for name, value in row.items()} for row in rows]


class TrainingPlan:
    """A plan file.

    Raises:
        UserError: If the file has no plan, or a method no name of its own on a data set.
    """

    def __init__(self, path: Path) -> None:
        try:
            fields = yaml.safe_load(path.read_text(encoding='utf-8'))
        except (OSError, yaml.YAMLError) as error:
            raise UserError(f'plan {path} cannot be read: {error}. Fix: a YAML file') from error
        fields = fields if isinstance(fields, dict) else {}
        tune = fields.get('tune', {})
        self.seeds = [*fields.get('seeds', ())]
        self.tune_seeds = [*tune.get('seeds', ())]
        self._methods = fields.get('methods', [])
        missing = [name for name in ('data', 'methods') if not fields.get(name)]
        if not self.seeds and not self.tune_seeds:
            missing.append('seeds')
        if missing:
            raise UserError(f'plan {path} has no {missing[0]}. Fix: seeds, data and methods')
        #: All fields of the file, for what a tool reads more of it.
        self.fields = fields
        data = fields['data']
        #: What the file says of each data set; one that is a folder has the name of the plan.
        self.data = data if isinstance(data, dict) else {path.stem: dict(folder=data)}
        if 'data_file' in fields:
            known = yaml.safe_load(path.with_name(fields['data_file']).read_text('utf-8'))
            for name, own in self.data.items():
                self.data[name] = {**known.get(own.pop('like', name), {}), **own}
        self._grid = tune.get('grid', {})
        for name in self.data:
            names = [method.get('name') for method in self._methods_of(name)]
            if None in names or len({*names}) < len(names):
                raise UserError(
                    f'plan {path} has the methods {names}. Fix: a name of its own for each'
                )

    def missing(
        self, name: str, record: Record, metric: str = ''
    ) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Facts and method of each training that a record lacks, trials first, seed by seed.

        Add the rows of a training to the record before the next one is asked for.

        Args:
            name: The data set.
            record: Its record.
            metric: Column of the record by which trials are compared; more is better.

        Yields:
            ``stage``, ``seed``, ``method`` (its name) and ``settings`` (what the plan says of this
            method alone) as a record has them; and the method with ``common`` and its choice.
        """
        methods = self._methods_of(name)
        left = {own['name']: self._seeds_left(own, record) for own in methods}
        for seed, own in itertools.product(self.tune_seeds, methods):
            for choice in self._choices(own) if left[own['name']] or not self.seeds else ():
                known = _rows_with(record.rows_of(TUNE, own['name']), choice)
                if str(seed) not in [row['seed'] for row in known]:
                    yield self._training(TUNE, seed, own, choice)
        for seed, own in itertools.product(self.seeds, methods):
            if seed in left[own['name']]:
                yield self._training(FINAL, seed, own, self._best(own, record, metric))

    def _seeds_left(self, own: Mapping, record: Record) -> list[int]:
        """Seeds on which a method is still to be trained."""
        known = [row['seed'] for row in record.rows_of(FINAL, own['name'])]
        return [seed for seed in self.seeds[: own.get('seeds')] if str(seed) not in known]

    def _methods_of(self, name: str) -> list[dict]:
        """What the file says of the methods of a data set."""
        return [own for own in self._methods if name in own.get('sets', [name])]

    def _choices(self, own: Mapping) -> list[dict]:
        """Each combination of the grid of a method."""
        return _combinations({**self._grid, **own.get('tune', {})})

    def _training(
        self, stage: str, seed: int, own: Mapping, choice: Mapping
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        settings = {key: value for key, value in own.items() if key not in _OF_PLAN} | choice
        facts = dict(stage=stage, method=own['name'], seed=seed, settings=json.dumps(settings))
        return facts, {**self.fields.get('common', {}), **settings}

    def _best(self, own: Mapping, record: Record, metric: str) -> dict:
        """The choice that a record has of earlier seeds, or else the best of its trials."""
        choices = self._choices(own)
        name = own['name']
        for choice in choices:
            if len(choices) == 1 or _rows_with(record.rows_of(FINAL, name), choice):
                return choice
        trials = record.rows_of(TUNE, name)
        last = max((int(row['step']) for row in trials), default=0)
        ends = [row for row in trials if int(row['step']) == last]
        means = []
        for choice in choices:
            values = [float(row[metric]) for row in _rows_with(ends, choice)]
            if not values:
                raise UserError(f'{name!r} was not tried with {choice}. Fix: seeds of tune')
            means.append(statistics.fmean(values))
        return choices[means.index(max(means))]


def loss_of(settings: Mapping[str, Any]) -> nn.Module:
    """A loss of mmrank; not by the registry, which needs OpenMMLab."""
    options = dict(settings)
    return getattr(losses, options.pop('type').removeprefix('mmrank.'))(**options)


def _combinations(grid: Mapping[str, Sequence]) -> list[dict]:
    return [dict(zip(grid, values)) for values in itertools.product(*grid.values())]


def _rows_with(rows: Iterable[dict[str, str]], choice: Mapping) -> list[dict[str, str]]:
    """The rows whose settings hold a choice."""
    found = []
    for row in rows:
        settings = json.loads(row['settings'])
        if all(settings.get(key) == value for key, value in choice.items()):
            found.append(row)
    return found
