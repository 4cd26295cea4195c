"""Plans of small trainings, each recorded as soon as it ends: a stopped plan goes on where it was.

A plan file has ``seeds``, ``data`` (sets by name, or a folder) and ``methods``, each with a
``name``, optionally ``seeds`` (how many of the plan's it is trained on) and ``sets`` (names of its
data sets), and with what its tool reads. ``common`` holds for all methods.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from mmrank.errors import UserError

from .records import append_rows, current_commit, past_rows

_OF_PLAN = ('name', 'seeds', 'sets')


class Record:
    """A record that is gone on with.

    Args:
        path: The CSV file, which need not be there.
        columns: Its columns; None takes the columns of the file, or else of the first rows.
    """

    def __init__(self, path: Path, columns: Iterable[str] | None = None) -> None:
        self.path = Path(path)
        self._columns = None if columns is None else [*columns]
        self._commit = current_commit()
        #: All rows, as text.
        self.rows = past_rows(path, self._columns)

    def find(self, **facts: Any) -> dict[str, str] | None:
        """The first row with these values, as text; None where it is still to be trained."""
        wanted = {key: str(value) for key, value in facts.items()}
        return next((row for row in self.rows if wanted.items() <= row.items()), None)

    def add(self, rows: Sequence[Mapping]) -> None:
        """Write the rows of a training, all or none; the commit is filled in."""
        rows = [dict(row, commit=self._commit) for row in rows]
        columns = self._columns or [*rows[0]]
        append_rows(self.path, rows, columns)
        self.rows += [{name: str(row[name]) for name in columns} for row in rows]


class TrainingPlan:
    """A plan file.

    Raises:
        UserError: If the file has no plan, or a method no name of its own.
    """

    def __init__(self, path: Path) -> None:
        try:
            fields = yaml.safe_load(path.read_text(encoding='utf-8'))
        except (OSError, yaml.YAMLError) as error:
            raise UserError(f'plan {path} cannot be read: {error}. Fix: a YAML file') from error
        fields = fields if isinstance(fields, dict) else {}
        missing = [name for name in ('seeds', 'data', 'methods') if not fields.get(name)]
        if missing:
            raise UserError(f'plan {path} has no {missing[0]}. Fix: seeds, data and methods')
        names = [method.get('name') for method in fields['methods']]
        if None in names or len({*names}) < len(names):
            raise UserError(f'plan {path} has the methods {names}. Fix: a name of its own for each')
        #: All fields of the file, for what a tool reads more of it.
        self.fields = fields
        data = fields['data']
        #: What the file says of each data set; one that is a folder has the name of the plan.
        self.data = data if isinstance(data, dict) else {path.stem: data}
        self.seeds = [*fields['seeds']]
        self.methods = [{**fields.get('common', {}), **own} for own in fields['methods']]
        self._own = dict(zip(names, fields['methods']))

    def pairs(self, name: str) -> Iterator[tuple[int, dict]]:
        """Seed and method of each training on a data set, seed by seed."""
        for seed in self.seeds:
            for method in self.methods:
                is_planned = seed in self.seeds[: method.get('seeds')]
                if is_planned and name in method.get('sets', [name]):
                    yield seed, method

    def settings(self, method: Mapping) -> str:
        """What the plan says of a method alone, as a record has it."""
        own = self._own[method['name']]
        return json.dumps({key: value for key, value in own.items() if key not in _OF_PLAN})
