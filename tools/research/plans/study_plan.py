"""Plans of studies, small trainings: each is recorded as soon as it ends.

A stopped plan goes on where its record ends. The combination of tuned values with the best mean is
trained on ``seeds``; a plan without ``seeds`` tries only. A study trains with the fields of the
plan, its set and the method.
"""

import itertools
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from mmrank import losses
from mmrank.experiments.records import FINAL, TUNE, append_rows, current_commit, past_rows
from plans import reader
from plans.reader import Plan, PlannedMethod, combinations


class Record:
    """A record with these columns, a CSV file that need not be there, which is gone on with.

    A file without the column ``stage`` keeps no trials.
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


def read_study(content: Any, set_name: str = '', folder: Path = Path()) -> Plan:
    """Read a set of a plan of a study, as :func:`reader.parse`."""
    plan = reader.parse(content, set_name, folder)
    plan.check()
    is_empty = not plan.seeds and not plan.tune_seeds
    reader.refuse((is_empty, 'seeds: []', 'one or more integers'))
    return plan


def missing(
    plan: Plan, record: Record, metric: str = ''
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Facts and settings of each training that a record lacks, trials first, seed by seed.

    Add the rows of a training to the record before the next one is asked for. ``metric`` is its
    column by which trials are compared; more is better. Facts are ``stage``, ``seed``, ``method``
    (its name) and ``settings``, what the plan says of this method alone.
    """

    def training(stage: str, seed: int, method: PlannedMethod, choice: Mapping) -> tuple:
        own = {**method.own, **choice}
        facts = dict(stage=stage, method=method.name, seed=seed, settings=json.dumps(own))
        return facts, {**plan.fields, **own}

    left = {}
    for method in plan.methods:
        known = [row['seed'] for row in record.rows_of(FINAL, method.name)]
        seeds = plan.seeds[: method.count]
        left[method.name] = [seed for seed in seeds if str(seed) not in known]
    for seed, method in itertools.product(plan.tune_seeds, plan.methods):
        is_due = left[method.name] or not plan.seeds
        if is_due:
            for choice in combinations(method.grid):
                known = _rows_with(record.rows_of(TUNE, method.name), choice)
                if str(seed) not in [row['seed'] for row in known]:
                    yield training(TUNE, seed, method, choice)
    for seed, method in itertools.product(plan.seeds, plan.methods):
        if seed in left[method.name]:
            yield training(FINAL, seed, method, _best(method, record, metric))


def _best(method: PlannedMethod, record: Record, metric: str) -> dict:
    """The choice that a record has of earlier seeds, or else the best of its trials."""
    choices = combinations(method.grid)
    for choice in choices:
        if len(choices) == 1 or _rows_with(record.rows_of(FINAL, method.name), choice):
            return choice
    trials = record.rows_of(TUNE, method.name)
    last = max((int(row['step']) for row in trials), default=0)
    ends = [row for row in trials if int(row['step']) == last]
    means = []
    for choice in choices:
        values = [float(row[metric]) for row in _rows_with(ends, choice)]
        means.append(statistics.fmean(values))
    return choices[means.index(max(means))]


def loss_of(settings: Mapping[str, Any]) -> nn.Module:
    """A loss of mmrank; not by the registry, which needs OpenMMLab."""
    options = dict(settings)
    return getattr(losses, options.pop('type').removeprefix('mmrank.'))(**options)


def _rows_with(rows: Iterable[dict[str, str]], choice: Mapping) -> list[dict[str, str]]:
    """The rows whose settings hold a choice."""
    found = []
    for row in rows:
        settings = json.loads(row['settings'])
        if all(settings.get(key) == value for key, value in choice.items()):
            found.append(row)
    return found
