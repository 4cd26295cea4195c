"""Tuned values of a plan: data of their own, the choice by validation, and their table."""

import json
import math
from collections.abc import Mapping, Sequence

from mmrank.errors import UserError
from mmrank.experiments.runs import Outcome
from mmrank.pictures.tables import markdown_table
from mmrank.runners.identity import read_settings
from plans.config_plan import SeedPlan, choice_label


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
                outcome.metrics[plan.decisive_metric]
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
        f'{plan.decisive_metric} on the validation data, seeds {seeds}.',
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
