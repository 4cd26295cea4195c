"""Plans of whole configs: the trainings, their tuning and folds, and a folder for each.

A plan keeps two rules that make its table worth something: a value is tuned on the validation data
with tuning seeds only, and what was tuned is measured on the test data with seeds that no tuning
has seen.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmrank.errors import UserError
from mmrank.experiments.plan import Comparison, Method, Run
from mmrank.experiments.records import FINAL, TUNE
from mmrank.experiments.runs import Outcome
from mmrank.files import write_atomically
from mmrank.pictures.tables import markdown_table
from mmrank.runners.identity import identity, read_settings
from plans import reader
from plans.reader import combinations, mapping, take, wrong


@dataclass(frozen=True)
class TunedMethod(Method):
    """A method with values to be tuned, by key."""

    grid: Mapping[str, Sequence[str]] = field(default_factory=dict)
    count: int | None = None  # How many of the seeds; all by default

    def choices(self) -> list[dict[str, str]]:
        """Each combination of the grid; none without one."""
        return combinations(self.grid) if self.grid else []


@dataclass(frozen=True)
class SeedPlan(Comparison):
    """A comparison: methods x seeds, with or without a tuning before it."""

    tune_seeds: tuple[int, ...] = ()  # Seeds of the tuning; none of ``seeds``
    tune_metric: str = ''  # Metric that decides the tuning, on validation data
    # Whether tuned methods may be measured on data that they were tuned on; the report notes it.
    allow_shared_split: bool = False
    # Options of each fold of a cross-validation, which the seed of the same place trains and tests
    folds: tuple[Mapping[str, str], ...] = ()
    # Numbers of the folds that the tuning is done in; other folds may test on their validation data
    tune_folds: tuple[int, ...] = ()
    # Options of the tuning runs alone, such as a training split without the validation classes
    tune_options: Mapping[str, str] = field(default_factory=dict)
    # What a paper prints: the metrics of a method, in the order of ``metrics``
    printed: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    def check(self) -> None:
        """Check that the fields fit together; a :class:`UserError` names the field and the fix."""
        names = [method.name for method in self.methods]
        no_fold = [fold for fold in self.tune_folds if fold >= len(self.folds)]
        is_tuned = any(method.grid for method in self.methods)
        reader.refuse(
            (self.baseline not in names, f'baseline: {self.baseline}', f'one of {names}'),
            (not self.seeds, 'seeds: []', 'one or more integers'),
            (not self.metrics, 'metrics: []', "keys of the evaluator's metrics"),
            (
                self.folds and len(self.folds) != len(self.seeds),
                f'seeds: {[*self.seeds]} for {len(self.folds)} folds',
                'leave out `seeds`, so that they are 0, 1, ...',
            ),
            (no_fold, f'tune.folds: {no_fold}', f'numbers below {len(self.folds)}'),
            (
                is_tuned and self.folds and not self.tune_folds,
                'tune.folds: []',
                'the folds whose validation data decide for all',
            ),
        )

    def tuning_runs(self) -> list[Run]:
        """All runs of the tuning: grid x tuning seeds, of each method, in its folds."""
        runs = []
        for fold in self.tune_folds or (None,):
            for method in self.methods:
                for choice in method.choices():
                    for seed in self.tune_seeds:
                        runs.append(self._planned(method, TUNE, seed, choice, fold))
        return runs

    def final_runs(self, chosen: Mapping[str, Mapping[str, str]] | None = None) -> list[Run]:
        """All runs that are measured on test data, with the values that were chosen by method."""
        chosen = chosen or {}
        runs = []
        # Seed by seed, so that an early look at the table is paired.
        for place, seed in enumerate(self.seeds):
            fold = place if self.folds else None
            for method in self.methods:
                is_chosen = not method.grid or method.name in chosen
                if is_chosen and seed in self.seeds[: method.count]:
                    choice = chosen.get(method.name, {})
                    runs.append(self._planned(method, FINAL, seed, choice, fold))
        return runs

    def _planned(
        self,
        method: TunedMethod,
        stage: str,
        seed: int,
        choice: Mapping[str, str],
        fold: int | None,
    ) -> Run:
        options = {**method.cfg_options, **choice}
        label = f'{stage} {method.name}' + f' {choice_label(choice)}' * bool(choice)
        place = ''
        if stage == TUNE:
            place = re.sub(r'[^\w.=+-]+', '_', choice_label(choice))[:100] + '/'
        if fold is not None:
            options.update(self.folds[fold])
            label += f' fold {fold}'
            place += f'fold_{fold}-'
        if stage == TUNE:
            options.update(self.tune_options)
        # A changed config, option or file changes the folder: results of two versions cannot end
        # up in one row.
        name = f'{place}seed_{seed}-{identity(method.config, options, stage)}'
        return Run(
            method.name,
            method.config,
            seed,
            options,
            self.out_dir / stage / method.name / name,
            split='val' if stage == TUNE else 'test',
            stage=stage,
            choice=dict(choice),
            label=f'{label} seed {seed}',
        )


def choice_label(choice: Mapping[str, str]) -> str:
    """Write tuned values shortly: ``lr=1e-4, weight_decay=0.05``."""
    return ', '.join(f'{key.rpartition(".")[2]}={value}' for key, value in choice.items())


def check_splits(plan: SeedPlan) -> None:
    """Check that tuned methods are measured on data of their own."""
    if plan.allow_shared_split:
        return
    for method in plan.methods:
        config = read_settings(method.config) if method.grid else {}
        splits = []
        for name in ('val_dataloader', 'test_dataloader'):
            dataset = dict((config.get(name) or {}).get('dataset') or {})
            for key in ('pipeline', 'test_mode', 'backend_args'):
                dataset.pop(key, None)
            splits.append(json.dumps(dataset, sort_keys=True, default=str))
        if method.grid and splits[0] == splits[1]:
            raise UserError(
                f'{method.config} tests on its validation data, on which {list(method.grid)} is '
                'tuned: the measured value would be too good. Add a separate `test_dataloader` to '
                'the config, or set `allow_shared_split` (the report notes it).'
            )


def choose(
    plan: SeedPlan, outcomes: Sequence[Outcome]
) -> tuple[dict[str, dict[str, str]], list[dict]]:
    """Choose each method's values by their mean on the validation data."""
    chosen = {}
    rows = []
    trials = len(plan.tune_seeds) * (len(plan.tune_folds) or 1)
    for method in plan.methods:
        own = []
        for choice in method.choices():
            values = [
                outcome.metrics[plan.tune_metric]
                for outcome in outcomes
                if outcome.run.method == method.name
                and outcome.run.choice == choice
                and outcome.metrics is not None
            ]
            at_edge = any(
                len(grid) > 1 and choice[key] in (grid[0], grid[-1])
                for key, grid in method.grid.items()
            )
            mean = sum(values) / len(values) if values else math.nan
            row = dict(method=method.name, choice=choice, n=len(values), mean=mean)
            own.append(row | dict(chosen=False, at_edge=at_edge))
        whole = [row for row in own if row['n'] == trials and not math.isnan(row['mean'])]
        if whole:
            best = max(whole, key=lambda row: row['mean'])
            best['chosen'] = True
            chosen[method.name] = best['choice']
        rows += own
    return chosen, rows


def tuning_section(plan: SeedPlan, tuning: Sequence[Mapping]) -> list[str]:
    """Lines of the report: each value that was tried, with its mean."""
    digits = max(0, 4 - round(math.log10(plan.scale)))
    seeds = ', '.join(map(str, plan.tune_seeds))
    if plan.tune_folds:
        seeds += f', fold {", ".join(map(str, plan.tune_folds))} for all folds'
    rows = []
    for row in tuning:
        note = 'chosen' if row['chosen'] else ''
        if row['chosen'] and row['at_edge']:
            note = 'chosen, at the edge of the grid: widen it'
        mean = row['mean'] * plan.scale
        shown = 'n/a' if math.isnan(mean) else f'{mean:.{digits}f}'
        rows.append([row['method'], choice_label(row['choice']), row['n'], shown, note])
    text = [
        *('', '## Tuning', ''),
        f'{plan.tune_metric} on the validation data, seeds {seeds}.',
        '',
        *markdown_table(['method', 'values', 'n', 'mean', ''], rows, align='llrrl'),
    ]
    if plan.allow_shared_split:
        text += [
            '',
            '**The test data may be the data that was tuned on** '
            '(`allow_shared_split`): the values above may be too good.',
        ]
    return text


def read_plan(path: str | Path, set_name: str = '') -> SeedPlan:
    """Read a plan, or one of its sets, from a ``.yaml`` file; errors as :func:`parse_plan`."""
    return parse_plan(reader.read_file(path), set_name, Path(path).parent)


def parse_plan(content: Any, set_name: str = '', folder: Path = Path()) -> SeedPlan:
    """Build a plan of whole configs as :func:`reader.parse`; see ``run_seeds.py --help``."""
    plan = reader.parse(content, set_name, folder)
    fields = plan.fields
    tune = plan.tune
    options = _read_options(fields.pop('cfg_options', None), 'cfg_options')
    config = take(fields, 'config', '', str | list, 'a config, or a list of bases')
    folds = enumerate(take(fields, 'folds', [], list, 'a list of options'))
    folds = tuple(_read_options(fold, f'folds[{index}]') for index, fold in folds)
    seeds = plan.seeds or tuple(range(len(folds)))
    methods = tuple(_read_method(method, config, options) for method in plan.methods)
    metrics = take(fields, 'metrics', [], str | list, 'a list of names')
    metrics = [metrics] if isinstance(metrics, str) else metrics
    if not all(isinstance(x, str) and x for x in metrics):
        raise wrong('metrics', metrics, 'a list of names')
    scale = take(fields, 'scale', 1.0, int | float, 'a number above 0')
    if not 0 < scale < math.inf:
        raise wrong('scale', scale, 'a number above 0')
    out_dir = take(fields, 'out_dir', 'work_dirs/seeds', str, 'a folder')
    if not out_dir or not out_dir.isprintable():
        raise wrong('out_dir', out_dir, 'a folder')
    made = SeedPlan(
        out_dir=Path(out_dir, set_name),
        methods=methods,
        seeds=seeds,
        metrics=tuple(metrics),
        baseline=take(fields, 'baseline', methods[0].name if methods else '', str, 'a name'),
        tune_seeds=plan.tune_seeds,
        tune_metric=take(tune, 'metric', ''.join(metrics[:1]), str, 'a key of a metric'),
        allow_shared_split=take(fields, 'allow_shared_split', False, bool, 'true or false'),
        scale=float(scale),
        unit='fold' if folds else 'seed',
        folds=folds,
        tune_folds=reader.read_integers(tune, 'folds'),
        tune_options=_read_options(tune.pop('cfg_options', None), 'tune.cfg_options'),
        printed=mapping(fields.pop('printed', None), 'printed'),
    )
    if unknown := [*fields, *(f'tune.{key}' for key in tune)]:
        raise UserError(
            f'the plan has unknown fields {unknown}. Fix: some of methods, config, sets, sets_of, '
            'seeds, folds, metrics, baseline, cfg_options, out_dir, scale, allow_shared_split, '
            'printed, tune (grid, seeds, metric, folds, cfg_options)'
        )
    plan.check()
    made.check()
    return made


def _read_method(
    method: reader.PlannedMethod, default: str | list, options: Mapping[str, str]
) -> TunedMethod:
    name = method.name
    own = dict(method.own)
    config = take(own, 'config', default, str | list, 'the config of each of the methods')
    if not config:
        raise wrong('config', config, 'the config of each of the methods, or of all')
    if isinstance(config, list):
        if not all(isinstance(base, str) for base in config):
            raise wrong('config', config, 'a list of paths')
        # Bases of another package have its name in front.
        paths = [base if '::' in base else str(Path(base).resolve()) for base in config]
        text = f'_base_ = {paths}\n'.encode()
        path = Path('work_dirs/configs', f'{hashlib.sha256(text).hexdigest()[:12]}.py')
        if not path.is_file():
            write_atomically(text, path)
        config = str(path)
    if not re.fullmatch(r'[\w.+-]{1,100}', name) or name in ('.', '..'):
        raise wrong('name', name, 'up to 100 letters, digits and _ . + -, as it names a folder')
    own_options = _read_options(own.pop('cfg_options', None), f'{name}.cfg_options')
    if own:
        raise UserError(
            f'the method {name!r} has unknown fields {[*own]}. Fix: some of name, config, '
            'cfg_options, seeds, sets, tune, each'
        )
    grid = {key: [reader.text_of(x) for x in values] for key, values in method.grid.items()}
    return TunedMethod(name, config, {**options, **own_options}, grid, method.count)


def _read_options(options: Any, where: str) -> dict[str, str]:
    found = reader.flatten(mapping(options, where))
    return {key: reader.text_of(value) for key, value in found}
