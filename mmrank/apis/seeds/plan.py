"""The plan of a comparison over seeds: methods, seeds, tuning, folders; and its file.

A plan keeps two rules that make its table worth something: a value is tuned on the validation data
with tuning seeds only, and what was tuned is measured on the test data with seeds that no tuning
has seen.
"""

import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from mmengine.config import Config

from mmrank.errors import UserError

from ..common.records import FINAL, TUNE


@dataclass(frozen=True)
class Method:
    """One row of the table: a config with overrides and, to be tuned, values by key."""

    name: str
    config: str
    cfg_options: Mapping[str, str] = field(default_factory=dict)
    grid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def choices(self) -> Iterator[dict[str, str]]:
        """Each combination of the grid."""
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values))


@dataclass(frozen=True)
class Run:
    """One training with one evaluation after it; ``choice`` are the options that are tuned."""

    method: str
    config: str
    stage: str
    seed: int
    options: Mapping[str, str]
    choice: Mapping[str, str]
    folder: Path
    fold: int | None = None

    @property
    def split(self) -> str:
        """Data that the run is evaluated on: ``'val'`` or ``'test'``."""
        return 'val' if self.stage == TUNE else 'test'

    @property
    def result_file(self) -> Path:
        """The file whose presence marks the run as finished."""
        return self.folder / 'result.json'

    @property
    def label(self) -> str:
        """Short name for logs."""
        choice = f' {choice_label(self.choice)}' if self.choice else ''
        fold = '' if self.fold is None else f' fold {self.fold}'
        return f'{self.stage} {self.method}{choice}{fold} seed {self.seed}'


@dataclass(frozen=True)
class SeedPlan:
    """A comparison: methods x seeds, with or without a tuning before it."""

    out_dir: Path  # Folder of all runs and of the report
    methods: tuple[Method, ...]  # What is compared
    seeds: tuple[int, ...]  # Seeds of the final runs
    # Keys of the metrics in the table, as the evaluator names them (``'coco/bbox_mAP'``)
    metrics: tuple[str, ...]
    lower_better: frozenset[str] = frozenset()  # Metrics of which less is better
    baseline: str = ''  # Name of the method that the others are tested against
    tune_seeds: tuple[int, ...] = ()  # Seeds of the tuning; none of ``seeds``
    tune_metric: str = ''  # Metric that decides the tuning, on validation data; default: the first
    # Whether tuned methods may be measured on data that they were tuned on. The report then notes
    # it.
    allow_shared_split: bool = False
    scale: float = 1.0  # Factor of the metrics in the report, 100 for percent
    # Overrides of each fold of a cross-validation. The i-th seed trains and tests the i-th fold.
    # Empty: seeds alone differ.
    folds: tuple[Mapping[str, str], ...] = ()
    # Numbers of the folds whose validation data decide for all folds, by the mean over them; other
    # folds may test on these data. Empty: each fold is tuned on its own.
    tune_folds: tuple[int, ...] = ()
    # Overrides of the tuning runs alone, such as a training split without the validation classes
    tune_options: Mapping[str, str] = field(default_factory=dict)
    executor: str = 'local'  # Where the runs are executed. It changes no result and no folder.
    executor_options: Mapping[str, str] = field(default_factory=dict)  # Options of the executor

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
        absent = set(self.tune_folds) - set(range(len(self.folds)))
        tuned = any(method.grid for method in self.methods)
        common = sorted(set(self.seeds) & set(self.tune_seeds))
        for wrong, message in (
            (not names, '`methods` is empty: set at least one config.'),
            (
                len(set(names)) < len(names),
                f'`methods` has the names {names}: two rows of the table would be one. Name each '
                'differently.',
            ),
            (
                self.baseline not in names,
                f'`baseline` {self.baseline!r} is not one of the methods {names}.',
            ),
            (not self.seeds, '`seeds` is empty: set one or more integers.'),
            (
                self.folds and len(self.folds) != len(self.seeds),
                f'`folds` has {len(self.folds)} entries and `seeds` {len(self.seeds)}: each fold '
                'is trained with one seed. Leave out `seeds` to number them 0, 1, ...',
            ),
            (
                absent,
                f'`tune.folds` names {sorted(absent)}, but the plan has {len(self.folds)} folds, '
                'numbered from 0.',
            ),
            (
                not self.metrics,
                '`metrics` is empty: name the keys that the evaluator returns, for example '
                'coco/bbox_mAP.',
            ),
            (
                tuned and not self.tune_seeds,
                '`tune.seeds` is empty although there is a grid: set tuning seeds that are not in '
                '`seeds`.',
            ),
            (
                tuned and common,
                f'`seeds` and `tune.seeds` share {common}: a seed used for tuning must not be used '
                'for measuring. Use other seeds.',
            ),
        ):
            if wrong:
                raise UserError(message)
        unknown = self.lower_better - {*self.metrics, self.decisive_metric}
        if unknown:
            raise UserError(
                f'`lower_better` names {sorted(unknown)}, which are none of the metrics '
                f'{list(self.metrics)}.'
            )

    def tuning_runs(self) -> list[Run]:
        """All runs of the tuning: grid x tuning seeds, of each method, in each fold."""
        return [
            self._run(method, TUNE, seed, choice, fold)
            for fold in self.tune_folds or self.fold_numbers
            for method in self.methods
            if method.grid
            for choice in method.choices()
            for seed in self.tune_seeds
        ]

    def final_runs(
        self, chosen: Mapping[tuple[str, int | None], Mapping[str, str]] | None = None
    ) -> list[Run]:
        """All runs that are measured on test data."""
        chosen = chosen or {}
        numbers = self.fold_numbers if self.folds else (None,) * len(self.seeds)
        return [
            self._run(method, FINAL, seed, chosen.get((method.name, fold), {}), fold)
            # Seed by seed, so that an early look at the table is paired.
            for seed, fold in zip(self.seeds, numbers)
            for method in self.methods
            if not method.grid or (method.name, fold) in chosen
        ]

    def _run(
        self, method: Method, stage: str, seed: int, choice: Mapping[str, str], fold: int | None
    ) -> Run:
        options = {**method.cfg_options, **choice}
        if fold is not None:
            options.update(self.folds[fold])
        if stage == TUNE:
            options.update(self.tune_options)
        content = json.dumps(
            [load_config(method.config), options, stage], sort_keys=True, default=str
        )
        # A changed config or option changes the folder: results of two versions cannot end up in
        # one row.
        name = f'seed_{seed}-{hashlib.sha256(content.encode()).hexdigest()[:8]}'
        if fold is not None:
            name = f'fold_{fold}-{name}'
        if stage == TUNE:
            name = re.sub(r'[^\w.=+-]+', '_', choice_label(choice)) + f'/{name}'
        folder = self.out_dir / stage / method.name / name
        return Run(method.name, method.config, stage, seed, options, dict(choice), folder, fold)


def choice_label(choice: Mapping[str, str]) -> str:
    """Write tuned values shortly: ``lr=1e-4, weight_decay=0.05``."""
    return ', '.join(f'{key.rpartition(".")[2]}={value}' for key, value in choice.items())


def load_config(path: str) -> dict:
    """Load a config with its bases, once; :class:`UserError` where there is none."""
    if not Path(path).is_file():
        raise UserError(f'Config {path!r} does not exist.')
    return _load_config(str(path), Path(path).stat().st_mtime)


@functools.cache
def _load_config(path: str, _changed: float) -> dict:
    try:
        # Its modules are for the process that trains.
        return Config.fromfile(path, import_custom_modules=False).to_dict()
    except Exception as error:  # a config is a program
        raise UserError(
            f'{path} cannot be read as a config: {type(error).__name__}: {error}'
        ) from error


def read_plan(path: str | Path) -> SeedPlan:
    """Read a plan from a ``.yaml`` file; errors as :func:`parse_plan`."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f'Plan file {str(path)!r} does not exist. Fix: its path from here on')
    try:
        content = yaml.safe_load(path.read_text('utf-8'))
    except Exception as error:  # YAML and Unicode have their own
        raise UserError(
            f'The plan {path} cannot be read: {error}. Fix: correct that line'
        ) from error
    if not isinstance(content, Mapping):
        raise UserError(f'The plan {path} is not a mapping of fields. Fix: begin with methods:')
    return parse_plan(content)


def parse_plan(plan: Mapping[str, Any]) -> SeedPlan:
    """Build a plan from the content of a plan file, see ``run_seeds.py --help``."""
    plan = dict(plan)
    tune = _take(plan, 'tune', None, Mapping | None, 'key: value pairs')
    tune = dict(tune or {})
    executor = _take(plan, 'executor', None, str | Mapping | None, 'local or slurm') or 'local'
    if isinstance(executor, str):
        executor = {'type': executor}
    executor = _read_options(executor, 'executor')
    shared_grid = _read_grid(tune.pop('grid', {}), 'tune.grid')
    options = _read_options(plan.pop('cfg_options', {}), 'cfg_options')
    entries = _take(plan, 'methods', (), list | tuple, 'a list of configs')
    methods = tuple(_read_method(entry, options, shared_grid) for entry in entries)
    folds = tuple(
        _read_options(fold, f'folds[{index}]')
        for index, fold in enumerate(
            _take(plan, 'folds', None, list | tuple | None, 'a list') or ()
        )
    )
    scale = _take(plan, 'scale', 1.0, int | float, 'a number above 0')
    if not 0 < scale < math.inf:
        raise UserError(f'`scale` is {scale}: set a number above 0.')
    out_dir = _take(plan, 'out_dir', 'work_dirs/seeds', str | Path, 'a folder')
    if not str(out_dir).isprintable() or not str(out_dir):
        raise UserError(f'`out_dir` is {out_dir!r}: set a folder.')
    made = SeedPlan(
        out_dir=Path(out_dir),
        methods=methods,
        seeds=_read_seeds(plan.pop('seeds', range(len(folds))), 'seeds'),
        metrics=_read_names(plan, 'metrics'),
        lower_better=frozenset(_read_names(plan, 'lower_better')),
        baseline=_take(plan, 'baseline', '', str, 'a name') or (methods[0].name if methods else ''),
        tune_seeds=_read_seeds(tune.pop('seeds', ()), 'tune.seeds'),
        tune_metric=_take(tune, 'metric', '', str, 'a key of a metric', 'tune.'),
        allow_shared_split=_take(plan, 'allow_shared_split', False, bool, 'true or false'),
        scale=float(scale),
        folds=folds,
        tune_folds=_read_seeds(tune.pop('folds', ()), 'tune.folds'),
        tune_options=_read_options(tune.pop('cfg_options', {}), 'tune.cfg_options'),
        executor=executor.pop('type', 'local'),
        executor_options=executor,
    )
    unknown = [*plan, *(f'tune.{key}' for key in tune)]
    if unknown:
        raise UserError(
            f'The plan has unknown fields {unknown}. Fix: remove or correct them; known are '
            'methods, seeds, folds, metrics, lower_better, baseline, cfg_options, tune (grid, '
            'seeds, metric, folds, cfg_options), out_dir, scale, allow_shared_split, executor.'
        )
    made.check()
    return made


def _take(fields: dict, key: str, default: Any, kind: Any, form: str, where: str = '') -> Any:
    """Take a field out of a plan; a UserError where its value is of another kind."""
    value = fields.pop(key, default)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise UserError(f'`{where}{key}` is {value!r}: set {form}.')
    return value


def _read_method(entry: Any, options: Mapping[str, str], grid: Mapping[str, tuple]) -> Method:
    if not isinstance(entry, str | Mapping):
        raise UserError(f'`methods` has {entry!r}: set a config, or config: ..., name: ...')
    entry = {'config': entry} if isinstance(entry, str) else dict(entry)
    config = _take(entry, 'config', None, str, 'the config of each method', 'methods.')
    name = _take(entry, 'name', Path(config).stem, str, 'a name', 'methods.')
    if not re.fullmatch(r'[\w.+-]+', name) or name in ('.', '..'):
        raise UserError(
            f'The method name {name!r} is also used as a folder name: use letters, digits and '
            '_ . + - only.'
        )
    own = _read_options(entry.pop('cfg_options', {}), f'{name}.cfg_options')
    own_grid = _read_grid(entry.pop('tune', None) or {}, f'{name}.tune')
    if entry:
        raise UserError(
            f'The method {name!r} has unknown fields {list(entry)}; known are name, config, '
            'cfg_options, tune.'
        )
    return Method(name, config, {**options, **own}, own_grid or dict(grid))


def _read_options(options: Any, where: str) -> dict[str, str]:
    if not isinstance(options, Mapping):
        raise UserError(f'`{where}` is {options!r}: set key: value pairs.')
    return {key: _text(value) for key, value in _flatten(options)}


def _flatten(options: Mapping[str, Any], prefix: str = '') -> Iterator[tuple[str, Any]]:
    """Give the values of nested mappings dotted keys."""
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f'{prefix}{key}.')
        else:
            yield f'{prefix}{key}', value


def _read_grid(grid: Any, where: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(grid, Mapping):
        raise UserError(f'`{where}` is {grid!r}: set key: [values].')
    for key, values in grid.items():
        if not isinstance(values, list | tuple) or not values:
            raise UserError(f'`{where}.{key}` is {values!r}: set a list of values.')
    return {str(key): tuple(map(_text, values)) for key, values in grid.items()}


def _read_seeds(seeds: Any, where: str) -> tuple[int, ...]:
    try:
        made = (seeds,) if isinstance(seeds, int) else tuple(seeds)
    except TypeError:
        made = (None,)
    # What torch and NumPy take.
    if any(type(seed) is not int or not 0 <= seed < 2**32 for seed in made):
        raise UserError(f'`{where}` is {seeds!r}: set a list of integers from 0 to 2^32 - 1.')
    if len(set(made)) < len(made):
        raise UserError(f'`{where}` {list(made)} has a seed twice.')
    return made


def _read_names(plan: dict, key: str) -> tuple[str, ...]:
    names = _take(plan, key, (), str | list | tuple, 'a list of names')
    names = (names,) if isinstance(names, str) else tuple(names)
    if not all(isinstance(name, str) and name for name in names):
        raise UserError(f'`{key}` is {list(names)}: set a list of names.')
    return names


def _text(value: Any) -> str:
    """Write a value as `--cfg-options` reads it: without blanks."""
    return value if isinstance(value, str) else str(value).replace(' ', '')
