"""Choose tuned values on validation data, and keep the test data apart."""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from mmrank.errors import UserError

from .outcome import Outcome
from .plan import SeedPlan, load_config


def check_splits(plan: SeedPlan) -> None:
    """Check that tuned methods are measured on data of their own.

    Raises:
        UserError: When the test data of a tuned config is its
            validation data, and this is not allowed explicitly.
    """
    if plan.allow_shared_split:
        return
    for method in plan.methods:
        if method.grid and has_shared_split(load_config(method.config)):
            raise UserError(
                f'{method.config} tests on its validation data, on which {list(method.grid)} is '
                'tuned: the measured value would be too good. Add a separate `test_dataloader` to '
                'the config, or set `allow_shared_split` (the report notes it).'
            )


def has_shared_split(config: Mapping[str, Any]) -> bool:
    """Whether a config's test data is its validation data."""
    splits = []
    for name in ('val_dataloader', 'test_dataloader'):
        loader = config.get(name) or {}
        dataset = dict(loader.get('dataset') or {})
        for key in ('pipeline', 'test_mode', 'backend_args'):
            dataset.pop(key, None)
        splits.append(json.dumps(dataset, sort_keys=True, default=str))
    return splits[0] == splits[1]


def choose(
    plan: SeedPlan, outcomes: Sequence[Outcome]
) -> tuple[dict[tuple[str, int | None], dict[str, str]], list[dict]]:
    """Choose each method's values by their mean on the validation data.

    Args:
        plan: The plan.
        outcomes: Outcomes of :meth:`SeedPlan.tuning_runs`.

    Returns:
        The chosen values by method and fold, and a row per combination and fold with ``method``,
        ``fold``, ``choice``, ``n``, ``mean``, ``values``, ``chosen`` and ``at_edge``. Combinations
        of which a run failed are not chosen.
    """
    metric = plan.decisive_metric
    sign = -1 if plan.is_lower_better(metric) else 1
    chosen, rows = {}, []
    shared = bool(plan.tune_folds)
    groups = (None,) if shared else plan.fold_numbers
    trials = len(plan.tune_seeds) * (len(plan.tune_folds) or 1)
    for method, fold in itertools.product(plan.methods, groups):
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
            own.append(
                {
                    'method': method.name,
                    'fold': fold,
                    'choice': choice,
                    'n': len(values),
                    'mean': sum(values) / len(values) if values else None,
                    'values': values,
                    'chosen': False,
                    'at_edge': any(
                        len(grid) > 1 and choice[key] in (grid[0], grid[-1])
                        for key, grid in method.grid.items()
                    ),
                }
            )
        whole = [row for row in own if row['n'] == trials and row['mean'] == row['mean']]
        if whole:
            best = max(whole, key=lambda row: sign * row['mean'])
            best['chosen'] = True
            for number in plan.fold_numbers if shared else (fold,):
                chosen[method.name, number] = best['choice']
        rows += own
    return chosen, rows
