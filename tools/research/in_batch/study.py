"""The cells of the study of in-batch sampling, tables 5 and 6, and their results."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from lib.common.training_plan import Record
from mmrank.errors import UserError
from research.in_batch.search import SearchRule, minimise_by_lbfgs, search_learning_rate
from research.in_batch.training import StepwiseTraining, TwoTowerData, emulated_omega

#: Losses of batches, in the order of the work: the weight of unbiased_omega comes from the results
#: of pos_neg.
SAMPLED_MODES = ('pos_neg', 'unbiased', 'in_batch', 'popularity', 'unbiased_omega', 'sogram')
#: Losses of all pairs; those in the second line have an emulated ratio.
FULL_MODES = ('unbiased', 'popularity')
FULL_OMEGA_MODES = ('unbiased_omega', 'in_batch_omega')
#: Metric by which the best batch ratio of pos_neg is chosen.
CHOICE = 'top_k/precision@5'
_COLUMNS = ('method', 'seed', 'settings', 'result')


@dataclass(frozen=True)
class Cell:
    """One cell; ``batch_ratio`` is ``|Ohat|^2 / |O|^2``; ``full``: all pairs, by L-BFGS."""

    pointwise: str
    mode: str
    batch_ratio: float | None
    full: bool = False

    @property
    def key(self) -> str:
        """Name that no other cell has."""
        kind = 'full' if self.full else 'sampled'
        ratio = '-' if self.batch_ratio is None else f'{self.batch_ratio:g}'
        return f'{kind}/{self.pointwise}/{self.mode}/{ratio}'


@dataclass(frozen=True)
class StudySettings:
    """Settings that all cells of a study share; ``max_steps`` are by batch ratio."""

    rule: SearchRule = field(default_factory=SearchRule)
    max_steps: Mapping[float, int] = field(default_factory=dict)
    max_iterations: int = 1000
    tolerance: float = 1e-7
    seed: int = 0
    device: str = 'cpu'

    def of(self, cell: Cell) -> dict:
        """Settings that the result of a cell depends on, fit for JSON."""
        if cell.full:
            keys = ('max_iterations', 'tolerance', 'seed')
            return {key: getattr(self, key) for key in keys}
        return dict(asdict(self.rule_of(cell)), seed=self.seed)

    def rule_of(self, cell: Cell) -> SearchRule:
        """The rule for a cell, with its limit of steps."""
        limit = self.max_steps.get(cell.batch_ratio, self.rule.max_steps)
        return replace(self.rule, max_steps=limit)


def study_cells(
    ratios: Iterable[float],
    pointwise: Iterable[str] = ('square', 'logistic'),
    modes: Iterable[str] = SAMPLED_MODES,
    full: bool = True,
) -> Iterator[Cell]:
    """Cells in the order of the work."""
    ratios = sorted(ratios, reverse=True)
    modes = [x for x in SAMPLED_MODES if x in set(modes)]
    for name in pointwise:
        for mode in modes:
            yield from (Cell(name, mode, x) for x in ratios)
        if full:
            yield from (Cell(name, x, None, True) for x in FULL_MODES)
            for mode in FULL_OMEGA_MODES:
                yield from (Cell(name, mode, x, True) for x in ratios)


def chosen_omega(cell: Cell, results: Mapping[str, Mapping], data: TwoTowerData) -> float:
    """Weight of the negatives: the weight of pos_neg at its best batch ratio (section 6.1.2)."""
    start = Cell(cell.pointwise, 'pos_neg', None).key.rpartition('/')[0]
    sampled = [x for key, x in results.items() if key.startswith(start + '/')]
    if not sampled:
        raise UserError(
            f'{cell.key}: its omega is that of pos_neg at its best batch '
            "ratio, but no cell of pos_neg is finished. Fix: add 'pos_neg' to "
            'the modes'
        )
    best = max(sampled, key=lambda x: x['best'].get(CHOICE, 0.0))
    size = data.batch_size(best['batch_ratio'])
    return emulated_omega(size, data.num_positives)


def run_cell(
    cell: Cell,
    data: TwoTowerData,
    settings: StudySettings,
    results: Mapping[str, Mapping],
    all_pairs: dict,
    report=None,
) -> dict:
    """Train the setting of a cell."""
    size = None if cell.batch_ratio is None else data.batch_size(cell.batch_ratio)
    loss = dict(type='mmrank.InBatchLoss', mode=cell.mode, pointwise=cell.pointwise)
    if cell.mode.endswith('_omega'):
        if cell.full:
            loss['omega'] = emulated_omega(size, data.num_positives)
        else:
            loss['omega'] = chosen_omega(cell, results, data)
    if cell.full:
        # It draws no batch; 2 pairs are always there to draw.
        training = StepwiseTraining(data, loss, 2, None, settings.seed, settings.device)
        objective = training.full_objective(all_pairs)
        limits = settings.tolerance, settings.max_iterations
        model = training.model.double()
        found = minimise_by_lbfgs(model, objective, *limits, evaluate=data.evaluate, report=report)
        outcome = asdict(found)
    else:

        def start(lr):
            training = StepwiseTraining(data, loss, size, lr, settings.seed, settings.device)
            training.objective(all_pairs)
            return training

        training, diverged = search_learning_rate(start, settings.rule_of(cell), report)
        outcome = dict(asdict(training), diverged=[x.lr for x in diverged])
    made = dict(key=cell.key, batch_size=size, omega=loss.get('omega'), settings=settings.of(cell))
    return asdict(cell) | made | outcome


class StudyRecord:
    """A record of :mod:`lib.common.records`: a row for each result, by its ``key``."""

    def __init__(self, path: str | os.PathLike) -> None:
        self._record = Record(Path(path), _COLUMNS)
        self.results = {x['method']: json.loads(x['result']) for x in self._record.rows}

    def find(self, key: str, settings: dict) -> dict | None:
        """The result of a key, or None."""
        result = self.results.get(key)
        if result is None:
            return None
        if result['settings'] != json.loads(json.dumps(settings)):
            raise UserError(
                f'{self._record.path}: {key} was made with the settings {result["settings"]}, now '
                f'they are {settings}. Fix: use another file, or the settings of before'
            )
        return result

    def add(self, result: dict) -> None:
        """Keep a result."""
        text, settings = json.dumps(result), json.dumps(result['settings'])
        seed = result['settings'].get('seed', 0)
        row = dict(method=result['key'], seed=seed, settings=settings, result=text)
        self._record.add([row])
        self.results[result['key']] = json.loads(text)
