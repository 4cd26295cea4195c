"""What a comparison over seeds runs: methods, seeds, tuning, folders.

A plan keeps two rules that make its table worth something: a value is tuned
on the validation data with tuning seeds only, and what was tuned is measured on the test data with
seeds that no tuning has seen.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mmengine.config import Config

from mmrank.errors import UserError

TUNE, FINAL = 'tune', 'final'


@dataclass(frozen=True)
class Method:
    """One row of the table.

    Args:
        name: Name in the table; letters, digits and ``_ . + -``.
        config: Path of the config.
        cfg_options: Overrides, ``key=value`` as on the command line.
        grid: Values to tune, by key. Empty: nothing is tuned.
    """

    name: str
    config: str
    cfg_options: Mapping[str, str] = field(default_factory=dict)
    grid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def choices(self) -> Iterator[dict[str, str]]:
        """Return each combination of the grid."""
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values))


@dataclass(frozen=True)
class Run:
    """One training with one evaluation after it.

    Args:
        method: Name of the method.
        config: Path of the config.
        stage: ``'tune'`` or ``'final'``.
        seed: Seed of the training.
        options: All overrides of the config but the seed.
        choice: Those that are being tuned.
        folder: Work directory, of this run alone.
        fold: Number of the fold; None where the plan has no folds.
    """

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
    """A comparison: methods x seeds, with or without a tuning before it.

    Args:
        out_dir: Folder of all runs and of the report.
        methods: What is compared.
        seeds: Seeds of the final runs.
        metrics: Keys of the metrics in the table, as the evaluator names
            them (``'coco/bbox_mAP'``); the first decides when tuning, unless ``tune_metric`` sets
            another.
        lower_better: Those of the metrics of which less is better.
        baseline: Name of the method that the others are tested against.
        tune_seeds: Seeds of the tuning; none of ``seeds``.
        tune_metric: Metric that decides the tuning, on validation data.
        allow_shared_split: Whether tuned methods may be measured on data
            that they were tuned on. The report then notes it.
        scale: Factor of the metrics in the report, 100 for percent.
        folds: Overrides of each fold of a cross-validation. The i-th seed trains and tests the i-th
            fold. Empty: seeds alone differ.
        tune_folds: Numbers of the folds whose validation data decide for all folds, by the mean
            over them; other folds may test on these
            data. Empty: each fold is tuned on its own.
        tune_options: Overrides of the tuning runs alone, such as a training split without the
            validation classes.
        executor: Where the runs are executed, a key of
            :data:`.arguments.EXECUTORS`. It changes no result and no folder.
        executor_options: Options of the executor.
    """

    out_dir: Path
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    lower_better: frozenset[str] = frozenset()
    baseline: str = ''
    tune_seeds: tuple[int, ...] = ()
    tune_metric: str = ''
    allow_shared_split: bool = False
    scale: float = 1.0
    folds: tuple[Mapping[str, str], ...] = ()
    tune_folds: tuple[int, ...] = ()
    tune_options: Mapping[str, str] = field(default_factory=dict)
    executor: str = 'local'
    executor_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def decisive_metric(self) -> str:
        """The metric that decides a tuning."""
        return self.tune_metric or self.metrics[0]

    def is_lower_better(self, metric: str) -> bool:
        """Whether less of the metric is better."""
        return metric in self.lower_better

    def check(self) -> None:
        """Check that the fields fit together.

        Raises:
            UserError: With the field, its value and what to do.
        """
        names = [method.name for method in self.methods]
        if not names:
            raise UserError('`methods` is empty: set at least one config.')
        if len(set(names)) < len(names):
            raise UserError(
                f'`methods` has the names {names}: two rows of the table '
                'would be one. Name each differently.'
            )
        if self.baseline not in names:
            raise UserError(f'`baseline` {self.baseline!r} is not one of the methods {names}.')
        if not self.seeds:
            raise UserError('`seeds` is empty: set one or more integers.')
        if self.folds and len(self.folds) != len(self.seeds):
            raise UserError(
                f'`folds` has {len(self.folds)} entries and `seeds` {len(self.seeds)}: each fold '
                'is trained with one seed. Leave out `seeds` to number them 0, 1, ...'
            )
        absent = set(self.tune_folds) - set(range(len(self.folds)))
        if absent:
            raise UserError(
                f'`tune.folds` names {sorted(absent)}, but the plan has '
                f'{len(self.folds)} folds, numbered from 0.'
            )
        if not self.metrics:
            raise UserError(
                '`metrics` is empty: name the keys that the evaluator '
                'returns, for example coco/bbox_mAP.'
            )
        unknown = self.lower_better - {*self.metrics, self.decisive_metric}
        if unknown:
            raise UserError(
                f'`lower_better` names {sorted(unknown)}, which are none of '
                f'the metrics {list(self.metrics)}.'
            )
        if not any(method.grid for method in self.methods):
            return
        if not self.tune_seeds:
            raise UserError(
                '`tune.seeds` is empty although there is a grid: set tuning '
                'seeds that are not in `seeds`.'
            )
        common = set(self.seeds) & set(self.tune_seeds)
        if common:
            raise UserError(
                f'`seeds` and `tune.seeds` share {sorted(common)}: a seed used for tuning must not '
                'be used for measuring. Use other seeds.'
            )

    def tuning_runs(self) -> list[Run]:
        """All runs of the tuning: grid x tuning seeds, of each method.

        With folds, in each of them.
        """
        return [
            self._run(method, TUNE, seed, choice, fold)
            for fold in self.tune_folds or self.fold_numbers
            for method in self.methods
            if method.grid
            for choice in method.choices()
            for seed in self.tune_seeds
        ]

    @property
    def fold_numbers(self) -> tuple[int | None, ...]:
        """Numbers of the folds; ``(None,)`` for a plan without."""
        return tuple(range(len(self.folds))) or (None,)

    def final_runs(
        self, chosen: Mapping[tuple[str, int | None], Mapping[str, str]] | None = None
    ) -> list[Run]:
        """All runs that are measured on test data.

        Args:
            chosen: The tuned values, by name of the method and fold. A
                method that has a grid and is not here has no run.
        """
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
        digest = hashlib.sha256(
            json.dumps(
                [load_config(method.config), options, stage], sort_keys=True, default=str
            ).encode()
        ).hexdigest()[:8]
        # A changed config or option changes the folder: results of two versions cannot end up in
        # one row.
        name = f'seed_{seed}-{digest}'
        if fold is not None:
            name = f'fold_{fold}-{name}'
        if stage == TUNE:
            name = f'{_safe(choice_label(choice))}/{name}'
        folder = self.out_dir / stage / method.name / name
        return Run(
            method=method.name,
            config=method.config,
            stage=stage,
            seed=seed,
            options=options,
            choice=dict(choice),
            folder=folder,
            fold=fold,
        )


def choice_label(choice: Mapping[str, str]) -> str:
    """Write tuned values shortly: ``lr=1e-4, weight_decay=0.05``."""
    return ', '.join(f'{key.rpartition(".")[2]}={value}' for key, value in choice.items())


_CONFIGS: dict[tuple[str, float], dict] = {}


def load_config(path: str) -> dict:
    """Load a config with its bases, once.

    Raises:
        UserError: When there is no such file or it is no config.
    """
    if not Path(path).is_file():
        raise UserError(f'Config {path!r} does not exist.')
    key = (str(path), Path(path).stat().st_mtime)
    if key not in _CONFIGS:
        try:
            # Its modules are for the process that trains.
            config = Config.fromfile(path, import_custom_modules=False)
        except Exception as error:  # a config is a program
            raise UserError(
                f'{path} cannot be read as a config: {type(error).__name__}: {error}'
            ) from error
        _CONFIGS[key] = config.to_dict()
    return _CONFIGS[key]


def _safe(text: str) -> str:
    return re.sub(r'[^\w.=+-]+', '_', text)
