"""Means, spreads and paired tests of a comparison over seeds; the choice of tuned values."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from mmrank.errors import UserError
from mmrank.experiments.plan import SeedPlan, load_config
from mmrank.experiments.records import Values
from mmrank.experiments.runs import Outcome


@dataclass(frozen=True)
class Summary:
    """A cell of the table, with its paired comparison to the baseline; NaN: too few values."""

    method: str
    metric: str
    n: int
    mean: float
    std: float
    pairs: int = 0
    difference: float = math.nan
    ci_low: float = math.nan
    ci_high: float = math.nan
    p_value: float = math.nan


def collect_values(plan: SeedPlan, outcomes: Sequence[Outcome]) -> Values:
    """Arrange the final runs' metrics by method, metric and seed."""
    return {
        method.name: {
            metric: {
                outcome.run.seed: outcome.metrics[metric] * plan.scale
                for outcome in outcomes
                if outcome.run.method == method.name and outcome.metrics is not None
            }
            for metric in plan.metrics
        }
        for method in plan.methods
    }


def compare_paired(values: Mapping, baseline: Mapping) -> dict[str, float]:
    """Compare two methods by the seeds that both have, with the interval of 95 %."""
    seeds = sorted(set(values) & set(baseline))
    if not seeds:
        return {'pairs': 0}
    ours, theirs = (np.array([x[s] for s in seeds]) for x in (values, baseline))
    differences = ours - theirs
    mean = float(differences.mean())
    made = {'pairs': len(seeds), 'difference': mean}
    if len(seeds) < 2:
        return made
    # Equal up to the rounding of the subtraction.
    rounding = 4 * np.finfo(float).eps * max(np.abs(ours).max(), np.abs(theirs).max())
    if np.ptp(differences) <= rounding:
        p_value = 1.0 if abs(mean) <= rounding else 0.0
        return {**made, 'ci_low': mean, 'ci_high': mean, 'p_value': p_value}
    test = stats.ttest_1samp(differences, 0.0)
    interval = test.confidence_interval(0.95)
    made.update(
        ci_low=float(interval.low), ci_high=float(interval.high), p_value=float(test.pvalue)
    )
    return made


def difference_text(values: Mapping, baseline: Mapping) -> str:
    """The mean of the paired differences with its interval; empty without a pair."""
    found = compare_paired(values, baseline)
    if not found['pairs']:
        return ''
    interval = ' [{ci_low:+.2f}, {ci_high:+.2f}]' if 'ci_low' in found else ''
    return ('{difference:+.2f}' + interval).format(**found)


def summarise(plan: SeedPlan, values: Values) -> list[Summary]:
    """Compute all cells of the table, method by method."""
    cells = []
    for method, metric in itertools.product((m.name for m in plan.methods), plan.metrics):
        own = values[method][metric]
        numbers = np.array([own[seed] for seed in sorted(own)])
        n = len(numbers)
        mean = float(numbers.mean()) if n else math.nan
        std = float(numbers.std(ddof=1)) if n > 1 else math.nan
        comparison = {}
        if method != plan.baseline:
            comparison = compare_paired(own, values[plan.baseline][metric])
        cells.append(Summary(method, metric, n, mean, std, **comparison))
    return cells


def check_splits(plan: SeedPlan) -> None:
    """Check that tuned methods are measured on data of their own."""
    if plan.allow_shared_split:
        return
    for method in plan.methods:
        if method.grid and _has_shared_split(load_config(method.config)):
            raise UserError(
                f'{method.config} tests on its validation data, on which {list(method.grid)} is '
                'tuned: the measured value would be too good. Add a separate `test_dataloader` to '
                'the config, or set `allow_shared_split` (the report notes it).'
            )


def _has_shared_split(config: Mapping[str, Any]) -> bool:
    """Whether a config's test data is its validation data."""
    splits = []
    for name in ('val_dataloader', 'test_dataloader'):
        dataset = dict((config.get(name) or {}).get('dataset') or {})
        for key in ('pipeline', 'test_mode', 'backend_args'):
            dataset.pop(key, None)
        splits.append(json.dumps(dataset, sort_keys=True, default=str))
    return splits[0] == splits[1]


def choose(
    plan: SeedPlan, outcomes: Sequence[Outcome]
) -> tuple[dict[tuple[str, int | None], dict[str, str]], list[dict]]:
    """Choose each method's values by their mean on the validation data."""
    metric = plan.decisive_metric
    chosen = {}
    rows = []
    shared = bool(plan.tune_folds)
    trials = len(plan.tune_seeds) * (len(plan.tune_folds) or 1)
    for method, fold in itertools.product(plan.methods, (None,) if shared else plan.fold_numbers):
        own = []
        for choice in method.choices() if method.grid else ():
            values = [
                outcome.metrics[metric]
                for outcome in outcomes
                if outcome.run.method == method.name
                and (shared or outcome.run.fold == fold)
                and outcome.run.choice == choice
                and outcome.metrics is not None
            ]
            at_edge = any(
                len(grid) > 1 and choice[key] in (grid[0], grid[-1])
                for key, grid in method.grid.items()
            )
            mean = sum(values) / len(values) if values else None
            row = dict(method=method.name, fold=fold, choice=choice, n=len(values), mean=mean)
            own.append(row | dict(values=values, chosen=False, at_edge=at_edge))
        whole = [row for row in own if row['n'] == trials and row['mean'] == row['mean']]
        if whole:
            best = max(whole, key=lambda row: row['mean'])
            best['chosen'] = True
            for number in plan.fold_numbers if shared else (fold,):
                chosen[method.name, number] = best['choice']
        rows += own
    return chosen, rows
