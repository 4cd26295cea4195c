"""Read the plan of a comparison over seeds from a file or a mapping."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mmengine
from mmengine.config import Config

from mmrank.errors import UserError

from .plan import Method, SeedPlan


def parse_plan(plan: Mapping[str, Any]) -> SeedPlan:
    """Build a plan from the content of a plan file.

    Args:
        plan: See ``tools/benchmarks/run_seeds.py --help``.

    Raises:
        UserError: When a field is missing, unknown or contradicts
            another one; the message names it.
    """
    plan = dict(plan)
    grid = dict(plan.pop('tune', None) or {})
    executor = plan.pop('executor', None) or 'local'
    if isinstance(executor, str):
        executor = {'type': executor}
    executor = _read_options(executor, 'executor')
    shared_grid = _read_grid(grid.pop('grid', {}), 'tune.grid')
    options = _read_options(plan.pop('cfg_options', {}), 'cfg_options')
    methods = tuple(_read_method(entry, options, shared_grid) for entry in plan.pop('methods', ()))
    folds = tuple(
        _read_options(fold, f'folds[{index}]')
        for index, fold in enumerate(plan.pop('folds', None) or ())
    )
    made = SeedPlan(
        out_dir=Path(plan.pop('out_dir', 'work_dirs/seeds')),
        methods=methods,
        seeds=_read_seeds(plan.pop('seeds', range(len(folds))), 'seeds'),
        metrics=_read_names(plan.pop('metrics', ())),
        lower_better=frozenset(_read_names(plan.pop('lower_better', ()))),
        baseline=plan.pop('baseline', '') or (methods[0].name if methods else ''),
        tune_seeds=_read_seeds(grid.pop('seeds', ()), 'tune.seeds'),
        tune_metric=grid.pop('metric', ''),
        allow_shared_split=bool(plan.pop('allow_shared_split', False)),
        scale=float(plan.pop('scale', 1.0)),
        folds=folds,
        tune_folds=_read_seeds(grid.pop('folds', ()), 'tune.folds'),
        tune_options=_read_options(grid.pop('cfg_options', {}), 'tune.cfg_options'),
        executor=executor.pop('type', 'local'),
        executor_options=executor,
    )
    unknown = [*plan, *(f'tune.{key}' for key in grid)]
    if unknown:
        raise UserError(
            f'The plan has unknown fields {unknown}; known are methods, seeds, folds, metrics, '
            'lower_better, baseline, cfg_options, tune (grid, seeds, metric, folds, cfg_options), '
            'out_dir, scale, allow_shared_split, executor.'
        )
    made.check()
    return made


def read_plan(path: str | Path) -> SeedPlan:
    """Read a plan from a ``.yaml``, ``.json`` or ``.py`` file.

    Raises:
        UserError: As :func:`parse_plan`, or when there is no such file.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f'Plan file {str(path)!r} does not exist.')
    content = Config.fromfile(path).to_dict() if path.suffix == '.py' else mmengine.load(path)
    if not isinstance(content, Mapping):
        raise UserError(f'The plan {path} is not a mapping of fields.')
    return parse_plan(content)


def _read_method(entry: Any, options: Mapping[str, str], grid: Mapping[str, tuple]) -> Method:
    if isinstance(entry, str):
        entry = {'config': entry}
    entry = dict(entry)
    if 'config' not in entry:
        raise UserError(f'The method {entry} has no `config`.')
    config = str(entry.pop('config'))
    name = str(entry.pop('name', Path(config).stem))
    if not re.fullmatch(r'[\w.+-]+', name):
        raise UserError(
            f'The method name {name!r} is also used as a folder name: use '
            'letters, digits and _ . + - only.'
        )
    own = _read_options(entry.pop('cfg_options', {}), f'{name}.cfg_options')
    own_grid = _read_grid(entry.pop('tune', None) or {}, f'{name}.tune')
    if entry:
        raise UserError(
            f'The method {name!r} has unknown fields {list(entry)}; known '
            'are name, config, cfg_options, tune.'
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
    made = {}
    for key, values in grid.items():
        if isinstance(values, (str, int, float)) or not values:
            raise UserError(f'`{where}.{key}` is {values!r}: set a list of values.')
        made[str(key)] = tuple(_text(value) for value in values)
    return made


def _read_seeds(seeds: Any, where: str) -> tuple[int, ...]:
    if isinstance(seeds, int):
        seeds = [seeds]
    try:
        made = tuple(int(seed) for seed in seeds)
    except (TypeError, ValueError) as error:
        raise UserError(f'`{where}` is {seeds!r}: set a list of integers.') from error
    if len(set(made)) < len(made):
        raise UserError(f'`{where}` {list(made)} has a seed twice.')
    return made


def _read_names(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _text(value: Any) -> str:
    """Write a value as `--cfg-options` reads it: without blanks."""
    if isinstance(value, str):
        return value
    return str(value).replace(' ', '')
