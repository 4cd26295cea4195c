"""The plan of a comparison over seeds: methods, seeds, tuning, folders; and its file.

A plan keeps two rules that make its table worth something: a value is tuned on the validation data
with tuning seeds only, and what was tuned is measured on the test data with seeds that no tuning
has seen.
"""

import fnmatch
import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mmrank.errors import UserError
from mmrank.experiments.plan import Comparison, Method, Run
from mmrank.experiments.records import FINAL, TUNE
from mmrank.files import write_atomically
from mmrank.runners.identity import identity


@dataclass(frozen=True)
class TunedMethod(Method):
    """A method with values to be tuned, by key."""

    grid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def choices(self) -> Iterator[dict[str, str]]:
        """Each combination of the grid."""
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values))


@dataclass(frozen=True)
class PlannedRun(Run):
    """A run of a plan, perhaps of one fold of a cross-validation."""

    fold: int | None = None


@dataclass(frozen=True)
class SeedPlan(Comparison):
    """A comparison: methods x seeds, with or without a tuning before it."""

    tune_seeds: tuple[int, ...] = ()  # Seeds of the tuning; none of ``seeds``
    tune_metric: str = ''  # Metric that decides the tuning, on validation data; default: the first
    # Whether tuned methods may be measured on data that they were tuned on. The report then notes
    # it.
    allow_shared_split: bool = False
    # Overrides of each fold of a cross-validation. The i-th seed trains and tests the i-th fold.
    # Empty: seeds alone differ.
    folds: tuple[Mapping[str, str], ...] = ()
    # Numbers of the folds whose validation data decide for all folds, by the mean over them; other
    # folds may test on these data. Empty: each fold is tuned on its own.
    tune_folds: tuple[int, ...] = ()
    # Overrides of the tuning runs alone, such as a training split without the validation classes
    tune_options: Mapping[str, str] = field(default_factory=dict)
    # What a paper prints: the metrics of a method, in the order of ``metrics``
    printed: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    @property
    def decisive_metric(self) -> str:
        """The metric that decides a tuning."""
        return self.tune_metric or self.metrics[0]

    @property
    def fold_numbers(self) -> tuple[int | None, ...]:
        """Numbers of the folds; ``(None,)`` for a plan without."""
        return tuple(range(len(self.folds))) or (None,)

    def check(self) -> None:
        """Check that the fields fit together; a :class:`UserError` names the field and the fix."""
        names = [method.name for method in self.methods]
        is_tuned = any(method.grid for method in self.methods)
        common = sorted({*self.seeds} & {*self.tune_seeds})
        no_fold = [fold for fold in self.tune_folds if fold >= len(self.folds)]
        for is_wrong, fault, fix in (
            (not names, 'methods: []', 'one or more configs'),
            (len({*names}) < len(names), f'methods: {names}', 'a name of its own for each'),
            (self.baseline not in names, f'baseline: {self.baseline}', f'one of {names}'),
            (not self.seeds, 'seeds: []', 'one or more integers'),
            (not self.metrics, 'metrics: []', "keys of the evaluator's metrics"),
            (
                self.folds and len(self.folds) != len(self.seeds),
                f'seeds: {[*self.seeds]} for {len(self.folds)} folds',
                'leave out `seeds`, so that they are 0, 1, ...',
            ),
            (no_fold, f'tune.folds: {no_fold}', f'numbers below {len(self.folds)}'),
            (is_tuned and not self.tune_seeds, 'tune.seeds: []', 'seeds that tune the grid'),
            (
                is_tuned and common,
                f'seeds and tune.seeds share {common}',
                'other seeds to measure than to tune with',
            ),
        ):
            if is_wrong:
                raise UserError(f'`{fault}` does not work. Fix: {fix}')

    def tuning_runs(self) -> list[PlannedRun]:
        """All runs of the tuning: grid x tuning seeds, of each method, in each fold."""
        return [
            self._planned(method, TUNE, seed, choice, fold)
            for fold in self.tune_folds or self.fold_numbers
            for method in self.methods
            if method.grid
            for choice in method.choices()
            for seed in self.tune_seeds
        ]

    def final_runs(
        self, chosen: Mapping[tuple[str, int | None], Mapping[str, str]] | None = None
    ) -> list[PlannedRun]:
        """All runs that are measured on test data."""
        chosen = chosen or {}
        numbers = self.fold_numbers if self.folds else (None,) * len(self.seeds)
        return [
            self._planned(method, FINAL, seed, chosen.get((method.name, fold), {}), fold)
            # Seed by seed, so that an early look at the table is paired.
            for seed, fold in zip(self.seeds, numbers)
            for method in self.methods
            if not method.grid or (method.name, fold) in chosen
        ]

    def _planned(
        self,
        method: TunedMethod,
        stage: str,
        seed: int,
        choice: Mapping[str, str],
        fold: int | None,
    ) -> PlannedRun:
        options = {**method.cfg_options, **choice}
        if fold is not None:
            options.update(self.folds[fold])
        if stage == TUNE:
            options.update(self.tune_options)
        # A changed config, option or file changes the folder: results of two versions cannot end
        # up in one row.
        name = f'seed_{seed}-{identity(method.config, options, stage)}'
        label = f'{stage} {method.name}'
        if fold is not None:
            name = f'fold_{fold}-{name}'
        if stage == TUNE:
            name = re.sub(r'[^\w.=+-]+', '_', choice_label(choice))[:100] + f'/{name}'
        if choice:
            label += f' {choice_label(choice)}'
        if fold is not None:
            label += f' fold {fold}'
        return PlannedRun(
            method.name,
            method.config,
            seed,
            options,
            self.out_dir / stage / method.name / name,
            split='val' if stage == TUNE else 'test',
            stage=stage,
            choice=dict(choice),
            label=f'{label} seed {seed}',
            fold=fold,
        )


def choice_label(choice: Mapping[str, str]) -> str:
    """Write tuned values shortly: ``lr=1e-4, weight_decay=0.05``."""
    return ', '.join(f'{key.rpartition(".")[2]}={value}' for key, value in choice.items())


def read_plan(path: str | Path, set_name: str = '') -> SeedPlan:
    """Read a plan, or one of its sets, from a ``.yaml`` file; errors as :func:`parse_plan`."""
    try:
        content = yaml.safe_load(Path(path).read_text('utf-8'))
    except Exception as error:  # YAML and Unicode have their own
        raise UserError(
            f'the plan {path} cannot be read: {error}. Fix: its path from here on, or that line'
        ) from error
    return parse_plan(content, set_name)


def parse_plan(plan: Any, set_name: str = '') -> SeedPlan:
    """Build a plan from the content of a plan file, see ``run_seeds.py --help``."""
    plan = _mapping(plan, 'the plan')
    if isinstance(plan.get('methods'), list):
        plan['methods'] = [row for entry in plan['methods'] for row in _rows_of(entry)]
    plan = _choose_set(plan, set_name)
    tune = _mapping(plan.pop('tune', None), 'tune')
    grid = _read_grid(tune.pop('grid', None), 'tune.grid')
    options = _read_options(plan.pop('cfg_options', None), 'cfg_options')
    config = _take(plan, 'config', '', str | list, 'a config, or a list of bases')
    entries = _take(plan, 'methods', [], list, 'a list of configs')
    methods = tuple(_read_method(entry, config, options, grid) for entry in entries)
    folds = enumerate(_take(plan, 'folds', [], list, 'a list of options'))
    folds = tuple(_read_options(fold, f'folds[{index}]') for index, fold in folds)
    scale = _take(plan, 'scale', 1.0, int | float, 'a number above 0')
    if not 0 < scale < math.inf:
        raise _wrong('scale', scale, 'a number above 0')
    out_dir = _take(plan, 'out_dir', 'work_dirs/seeds', str, 'a folder')
    if not out_dir or not out_dir.isprintable():
        raise _wrong('out_dir', out_dir, 'a folder')
    made = SeedPlan(
        out_dir=Path(out_dir, set_name),
        methods=methods,
        seeds=_read_seeds(plan, 'seeds', [*range(len(folds))]),
        metrics=_read_names(plan),
        baseline=_take(plan, 'baseline', methods[0].name if methods else '', str, 'a name'),
        tune_seeds=_read_seeds(tune, 'seeds', []),
        tune_metric=_take(tune, 'metric', '', str, 'a key of a metric'),
        allow_shared_split=_take(plan, 'allow_shared_split', False, bool, 'true or false'),
        scale=float(scale),
        unit='fold' if folds else 'seed',
        folds=folds,
        tune_folds=_read_seeds(tune, 'folds', []),
        tune_options=_read_options(tune.pop('cfg_options', None), 'tune.cfg_options'),
        printed=_mapping(plan.pop('printed', None), 'printed'),
    )
    if unknown := [*plan, *(f'tune.{key}' for key in tune)]:
        raise UserError(
            f'the plan has unknown fields {unknown}. Fix: some of methods, config, sets, seeds, '
            'folds, metrics, baseline, cfg_options, out_dir, scale, allow_shared_split, printed, '
            'tune (grid, seeds, metric, folds, cfg_options)'
        )
    made.check()
    return made


def _wrong(field: str, value: object, fix: str) -> UserError:
    return UserError(f'`{field}` is {value!r:.200}. Fix: {fix}')


def _take(fields: dict, key: str, default: Any, kind: Any, form: str) -> Any:
    """Take a field out of a plan; a UserError where its value is of another kind."""
    value = fields.pop(key, default)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _wrong(key, value, form)
    return value


def _mapping(value: Any, where: str) -> dict[str, Any]:
    """A mapping with texts as keys; nothing is an empty one."""
    if not isinstance(value, Mapping | None):
        raise _wrong(where, value, 'key: value pairs')
    return {str(key): x for key, x in (value or {}).items()}


def _rows_of(entry: Any) -> list[Any]:
    """The methods of an entry: one for each value of its ``each``, or the entry itself."""
    if not isinstance(entry, dict) or 'each' not in entry:
        return [entry]
    columns = _read_grid(entry['each'], 'each')
    if len({len(values) for values in columns.values()}) != 1:
        raise _wrong('each', entry['each'], 'lists of the same length by key')
    common = {key: value for key, value in entry.items() if key != 'each'}
    options = dict(_flatten(_mapping(entry.get('cfg_options'), 'cfg_options')))
    rows = []
    for values in zip(*columns.values()):
        own = dict(zip(columns, values))
        own.pop('name', None)
        name = str(entry.get('name')).replace('{}', values[0])
        rows.append({**common, 'name': name, 'cfg_options': {**options, **own}})
    return rows


def _choose_set(plan: dict[str, Any], name: str) -> dict[str, Any]:
    """The fields that all sets share, overridden by the fields of one."""
    sets = _mapping(plan.pop('sets', None), 'sets')
    if name not in (sets or ['']):
        have = f'the sets {[*sets]}' if sets else 'no sets'
        raise UserError(f'the plan has {have}, not {name!r}. Fix: another --set, or none')
    if not name:
        return plan
    chosen = _mapping(sets[name], name)
    own = _mapping(chosen.pop('methods', None), f'{name}.methods')
    left_out = _take(chosen, 'leave_out', [], list, 'a list of names of methods')
    entries = _take({**plan}, 'methods', [], list, 'a list of configs')
    entries = [x if isinstance(x, dict) else {'config': x} for x in entries]
    names = [str(entry.get('name', Path(str(entry.get('config'))).stem)) for entry in entries]
    entries = dict(zip(names, entries))
    left_out = [str(pattern) for pattern in left_out]
    unknown = [pattern for pattern in (*own, *left_out) if not fnmatch.filter(entries, pattern)]
    if unknown:
        raise _wrong(f'{name}.methods', unknown, f'some of {[*entries]}')
    merged = {**plan, **chosen, 'methods': []}
    merged['cfg_options'] = _merge(plan.get('cfg_options'), chosen.get('cfg_options'))
    for method, entry in entries.items():
        if any(fnmatch.fnmatchcase(method, pattern) for pattern in left_out):
            continue
        for pattern, fields in own.items():
            if fnmatch.fnmatchcase(method, pattern):
                entry = _merge(entry, fields)
        merged['methods'].append(entry)
    return merged


def _merge(first: Mapping | None, second: Mapping | None) -> dict[str, Any]:
    """Merge two mappings; the second decides, and what it holds is merged in turn."""
    merged = dict(first or {})
    for key, value in (second or {}).items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _config_of_bases(bases: list) -> str:
    """Write the config that has these bases, and return its path."""
    if not all(isinstance(base, str) for base in bases):
        raise _wrong('config', bases, 'a list of paths')
    # Bases of another package have its name in front.
    paths = [base if '::' in base else str(Path(base).resolve()) for base in bases]
    text = f'_base_ = {paths}\n'
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = Path('work_dirs/configs', f'{name}.py')
    if not path.is_file():
        write_atomically(text.encode(), path)
    return str(path)


def _read_method(
    entry: Any, default: str | list, options: Mapping[str, str], grid: Mapping[str, tuple]
) -> TunedMethod:
    entry = _mapping({'config': entry} if isinstance(entry, str) else entry, 'methods')
    config = _take(entry, 'config', default, str | list, 'the config of each of the methods')
    if not config:
        raise _wrong('config', config, 'the config of each of the methods, or of all')
    if isinstance(config, list):
        config = _config_of_bases(config)
    name = _take(entry, 'name', Path(config).stem, str, 'a name')
    if not re.fullmatch(r'[\w.+-]{1,100}', name) or name in ('.', '..'):
        raise _wrong('name', name, 'up to 100 letters, digits and _ . + -, as it names a folder')
    own = _read_options(entry.pop('cfg_options', None), f'{name}.cfg_options')
    own_grid = _read_grid(entry.pop('tune', None), f'{name}.tune')
    if entry:
        raise UserError(
            f'the method {name!r} has unknown fields {[*entry]}. Fix: some of name, config, '
            'cfg_options, tune, each'
        )
    return TunedMethod(name, config, {**options, **own}, own_grid or dict(grid))


def _read_options(options: Any, where: str) -> dict[str, str]:
    return {key: _text(value) for key, value in _flatten(_mapping(options, where))}


def _flatten(options: Mapping, prefix: str = '') -> Iterator[tuple[str, Any]]:
    """Give the values of nested mappings dotted keys."""
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f'{prefix}{key}.')
        else:
            yield f'{prefix}{key}', value


def _read_grid(grid: Any, where: str) -> dict[str, tuple[str, ...]]:
    grid = _mapping(grid, where)
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise _wrong(f'{where}.{key}', values, 'a list of values')
    return {key: tuple(map(_text, values)) for key, values in grid.items()}


def _read_seeds(fields: dict, key: str, default: list[int]) -> tuple[int, ...]:
    seeds = fields.pop(key, default)
    made = seeds if isinstance(seeds, list) else [seeds]
    # What torch and NumPy take.
    if any(type(seed) is not int or not 0 <= seed < 2**32 for seed in made):
        raise _wrong(key, seeds, 'a list of integers from 0 to 2^32 - 1')
    if len({*made}) < len(made):
        raise _wrong(key, seeds, 'none of them twice')
    return tuple(made)


def _read_names(plan: dict) -> tuple[str, ...]:
    names = plan.pop('metrics', [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(x, str) and x for x in names):
        raise _wrong('metrics', names, 'a list of names')
    return tuple(names)


def _text(value: Any) -> str:
    """Write a value as `--cfg-options` reads it: without blanks."""
    return value if isinstance(value, str) else str(value).replace(' ', '')
