"""The one reader of plans: YAML files that say which methods are trained on which seeds.

::

    seeds: [0, 1, 2]
    tune:                      # leave out to tune nothing
      seeds: [100, 101]        # none of those above
      metric: mAP              # decides; default: the first
      grid: {rate: [0.1, 0.3]} # values to try, by setting
    methods:
    - {name: a, rate: 0.2}
    - {name: b, tune: {rate: [0.2, 0.4], size: [1, 2]}}  # more or other values; null: none
    - {name: c, seeds: 2}      # the first two of the seeds
    - {name: d, sets: [large]} # in that set alone
    - {name: 'e-{}', each: {rate: [0.3, 1.0]}}  # a method for each value: e-0.3 and e-1.0. Further
                               # lists go side by side; the values of a first one, `name`, fill in
                               # the {} alone
    sets:                      # variants: their fields are merged into those above
      small: {seeds: [0], leave_out: [a, 'e-*'], methods: {b: {rate: 0.1}}}
      large: {like: big}
    sets_of: other.yaml        # a set has what that file says of its name, or of the name ``like``

What the plan says holds for its methods, too, unless they say otherwise. In a plan of whole configs
the settings of ``tune`` and ``each`` are ``cfg_options``, in one of a study fields of the method.
"""

import fnmatch
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mmrank.errors import UserError

#: What the reader itself reads of a method.
_OF_METHOD = ('name', 'seeds', 'sets', 'tune', 'each')


@dataclass(frozen=True)
class PlannedMethod:
    """A method: what its entry says, and the values that are tuned."""

    name: str
    own: Mapping[str, Any]
    grid: Mapping[str, Sequence]
    count: int | None = None  # How many of the seeds; all by default


@dataclass(frozen=True)
class Plan:
    """A plan, or one of its sets."""

    fields: dict[str, Any]  # All that is not below
    methods: tuple[PlannedMethod, ...]
    seeds: tuple[int, ...]
    tune: dict[str, Any]  # Without grid and seeds
    tune_seeds: tuple[int, ...]

    def check(self) -> None:
        """Check that the fields fit together; a :class:`UserError` names the field and the fix."""
        names = [method.name for method in self.methods]
        is_tuned = any(method.grid for method in self.methods)
        shared = sorted({*self.seeds} & {*self.tune_seeds})
        refuse(
            (not names, 'methods: []', 'one or more methods'),
            (len({*names}) < len(names), f'methods: {names}', 'a name of its own for each'),
            (is_tuned and not self.tune_seeds, 'tune.seeds: []', 'seeds that tune the grid'),
            (
                is_tuned and shared,
                f'seeds and tune.seeds share {shared}',
                'other seeds to measure than to tune with',
            ),
        )


def refuse(*rules: tuple[object, str, str]) -> None:
    """Raise a UserError for the first rule that is broken, with its fault and its fix."""
    for is_broken, fault, fix in rules:
        if is_broken:
            raise UserError(f'`{fault}` does not work. Fix: {fix}')


def read_file(path: str | Path) -> Any:
    """The content of a YAML file; a :class:`UserError` if it cannot be read."""
    try:
        return yaml.safe_load(Path(path).read_text('utf-8'))
    except Exception as error:  # YAML and Unicode have their own
        raise UserError(
            f'the plan {path} cannot be read: {error}. Fix: its path from here on, or that line'
        ) from error


def parse(content: Any, set_name: str = '', folder: Path = Path()) -> Plan:
    """Read a plan, or one of its sets, of what its file in a folder says.

    A :class:`UserError` names a field with a wrong value.
    """
    fields = mapping(content, 'the plan')
    if isinstance(fields.get('methods'), list):
        fields['methods'] = [row for entry in fields['methods'] for row in _rows_of(entry, fields)]
    fields = _choose_set(fields, set_name, folder)
    tune = mapping(fields.pop('tune', None), 'tune')
    grid = read_grid(tune.pop('grid', None), 'tune.grid')
    seeds = read_integers(fields, 'seeds')
    tune_seeds = read_integers(tune, 'seeds')
    entries = take(fields, 'methods', [], list, 'a list of methods')
    methods = tuple(_read_method(entry, grid) for entry in entries)
    return Plan(fields, methods, seeds, tune, tune_seeds)


def combinations(grid: Mapping[str, Sequence]) -> list[dict]:
    """Each combination of the values of a grid."""
    return [dict(zip(grid, values)) for values in itertools.product(*grid.values())]


def wrong(field: str, value: object, fix: str) -> UserError:
    """The error of a field with a wrong value."""
    return UserError(f'`{field}` is {value!r:.200}. Fix: {fix}')


def take(fields: dict, key: str, default: Any, kind: Any, form: str) -> Any:
    """Take a field out of a plan; a :class:`UserError` if its value is of another kind."""
    value = fields.pop(key, default)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise wrong(key, value, form)
    return value


def mapping(value: Any, where: str) -> dict[str, Any]:
    """A mapping with texts as keys; nothing is an empty one."""
    if not isinstance(value, Mapping | None):
        raise wrong(where, value, 'key: value pairs')
    return {str(key): x for key, x in (value or {}).items()}


def merge(first: Mapping | None, second: Mapping | None) -> dict[str, Any]:
    """Merge two mappings; the second decides, and what it holds is merged in turn."""
    merged = dict(first or {})
    for key, value in (second or {}).items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def flatten(options: Mapping, prefix: str = '') -> Iterator[tuple[str, Any]]:
    """Give the values of nested mappings dotted keys."""
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f'{prefix}{key}.')
        else:
            yield f'{prefix}{key}', value


def read_grid(grid: Any, where: str) -> dict[str, list]:
    """Values to try, by setting."""
    grid = mapping(grid, where)
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise wrong(f'{where}.{key}', values, 'a list of values')
    return grid


def read_integers(fields: dict, key: str) -> tuple[int, ...]:
    """Take seeds, or numbers of folds, out of a plan."""
    found = fields.pop(key, [])
    made = found if isinstance(found, list) else [found]
    # What torch and NumPy take.
    if any(type(x) is not int or not 0 <= x < 2**32 for x in made):
        raise wrong(key, found, 'a list of integers from 0 to 2^32 - 1')
    if len({*made}) < len(made):
        raise wrong(key, found, 'none of them twice')
    return tuple(made)


def text_of(value: Any) -> str:
    """Write a value as ``--cfg-options`` reads it: without blanks."""
    return value if isinstance(value, str) else str(value).replace(' ', '')


def _rows_of(entry: Any, plan: Mapping) -> list[Any]:
    """The methods of an entry: one for each value of its ``each``, or the entry itself."""
    if not isinstance(entry, dict) or 'each' not in entry:
        return [entry]
    columns = read_grid(entry['each'], 'each')
    if len({len(values) for values in columns.values()}) != 1:
        raise wrong('each', entry['each'], 'lists of the same length by key')
    common = {key: value for key, value in entry.items() if key != 'each'}
    rows = []
    for values in zip(*columns.values()):
        name = str(entry.get('name')).replace('{}', text_of(values[0]))
        own = {key: value for key, value in zip(columns, values) if key != 'name'}
        if 'study' in plan:
            row = common
            for key, value in own.items():
                row = merge(row, _nested(key, value))
        else:
            options = dict(flatten(mapping(entry.get('cfg_options'), 'cfg_options')))
            row = {**common, 'cfg_options': {**options, **own}}
        rows.append({**row, 'name': name})
    return rows


def _nested(key: str, value: Any) -> dict[str, Any]:
    """The mapping that has a value at a dotted key."""
    first, _, rest = key.partition('.')
    return {first: _nested(rest, value) if rest else value}


def _choose_set(plan: dict[str, Any], name: str, folder: Path) -> dict[str, Any]:
    """The fields that all sets share, with those of one."""
    sets = mapping(plan.pop('sets', None), 'sets')
    file = plan.pop('sets_of', None)
    if name not in (sets or ['']):
        have = f'the sets {[*sets]}' if sets else 'no sets'
        fix = f'--set {next(iter(sets))}' if sets else 'leave out --set'
        raise UserError(f'the plan has {have}, not {name!r}', fix)
    if not name:
        return plan
    chosen = mapping(sets[name], name)
    if file is not None:
        known = mapping(read_file(folder / file), file)
        chosen = {**mapping(known.get(chosen.pop('like', name)), name), **chosen}
    own = mapping(chosen.pop('methods', None), f'{name}.methods')
    left_out = [str(x) for x in take(chosen, 'leave_out', [], list, 'names of methods')]
    entries = [_named(entry) for entry in take(plan, 'methods', [], list, 'a list of methods')]
    names = [entry['name'] for entry in entries]
    unknown = [pattern for pattern in (*own, *left_out) if not fnmatch.filter(names, pattern)]
    if unknown:
        raise wrong(f'{name}.methods', unknown, f'some of {names}')
    merged = {**merge(plan, chosen), 'methods': []}
    for entry in entries:
        is_out = any(fnmatch.fnmatchcase(entry['name'], pattern) for pattern in left_out)
        if is_out or name not in entry.get('sets', [name]):
            continue
        for pattern, changes in own.items():
            if fnmatch.fnmatchcase(entry['name'], pattern):
                entry = merge(entry, changes)
        merged['methods'].append(entry)
    return merged


def _named(entry: Any) -> dict[str, Any]:
    """An entry with a name, by default the name of its config."""
    entry = mapping({'config': entry} if isinstance(entry, str) else entry, 'methods')
    if 'name' not in entry and isinstance(entry.get('config'), str):
        entry['name'] = Path(entry['config']).stem
    if not isinstance(entry.get('name'), str) or not entry['name']:
        raise wrong('name', entry.get('name'), 'a name of its own for each of the methods')
    return entry


def _read_method(entry: Any, grid: Mapping[str, list]) -> PlannedMethod:
    entry = _named(entry)
    name = entry['name']
    tuned = mapping(entry.get('tune'), f'{name}.tune')
    added = read_grid({key: x for key, x in tuned.items() if x is not None}, f'{name}.tune')
    kept = {key: values for key, values in grid.items() if tuned.get(key, 0) is not None}
    count = entry.get('seeds')
    if count is not None and (type(count) is not int or count < 1):
        raise wrong(f'{name}.seeds', count, 'how many of the seeds')
    own = {key: value for key, value in entry.items() if key not in _OF_METHOD}
    return PlannedMethod(name, own, {**kept, **added}, count)
