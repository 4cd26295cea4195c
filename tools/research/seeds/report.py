"""Tables of a comparison over seeds."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from mmrank.files import write_csv_atomically
from mmrank.visualization.tables import markdown_table

from .outcome import Outcome
from .plan import SeedPlan, choice_label
from .statistics import Summary


def write_csv(cells: Sequence[Summary], path: str | os.PathLike) -> Path:
    """Write the cells as CSV, one line per method and metric."""
    rows = [asdict(cell) for cell in cells]
    return write_csv_atomically([rows[0], *(x.values() for x in rows)], path)


def write_runs_csv(plan: SeedPlan, outcomes: Sequence[Outcome], path: str | os.PathLike) -> Path:
    """Write the single runs as CSV, for statistics of the reader's own."""
    rows = [['stage', 'method', 'choice', 'seed', 'metric', 'value']]
    for outcome in outcomes:
        run = outcome.run
        choice = choice_label(run.choice)
        rows += [
            [run.stage, run.method, choice, run.seed, key, repr(value)]
            for key, value in sorted((outcome.metrics or {}).items())
        ]
    return write_csv_atomically(rows, path)


def write_markdown(
    plan: SeedPlan,
    cells: Sequence[Summary],
    *,
    tuning: Sequence[Mapping] = (),
    failures: Sequence[Outcome] = (),
    digits: int | None = None,
) -> str:
    """Write the report as Markdown.

    Args:
        plan: The plan.
        cells: From :func:`research.seeds.statistics.summarise`.
        tuning: Rows of :func:`research.seeds.tuning.choose`.
        failures: Outcomes of the runs that failed.
        digits: Decimals of the metrics; by default from the scale.

    Returns:
        The text: the table, how to read it, the tuning, the failures.
    """
    if digits is None:
        digits = max(0, 4 - round(math.log10(plan.scale)))
    header = [
        *('method', 'metric', 'n', 'mean ± std'),
        f'difference to {plan.baseline} [95 % CI]',
        'p (paired t)',
    ]
    rows, marks = [], []
    for metric in plan.metrics:
        own = [cell for cell in cells if cell.metric == metric]
        best = _best(plan, metric, own)
        arrow = '↓' if plan.is_lower_better(metric) else '↑'
        for cell in own:
            spread = _number(cell.std, digits)
            value = f'{_number(cell.mean, digits)} ± {spread}'
            rows.append(
                [
                    *(cell.method, f'{metric} {arrow}', cell.n, value),
                    _difference(plan, cell, digits),
                    _p_value(cell.p_value),
                ]
            )
            is_best = cell is best
            marks.append([column == 3 and is_best for column in range(6)])
    seeds = ', '.join(map(str, plan.seeds))
    unit = 'fold' if plan.folds else 'seed'
    text = [
        *markdown_table(header, rows, marks, 'llrrrr'),
        '',
        f'Test data; {unit}s {seeds}; std with ddof=1; the differences are paired by {unit}. No '
        'p-value is corrected for the number of methods or metrics.',
    ]
    if plan.scale != 1:
        text += ['', f'Metrics are multiplied by {plan.scale:g}.']
    if any(cell.n < len(plan.seeds) for cell in cells):
        text += ['', f'Some {unit}s are missing: see n, and the failures below.']
    text += _tuning_section(plan, tuning, digits)
    if failures:
        text += ['', '## Failures', '']
        for outcome in failures:
            text += [f'- {outcome.run.label}:', '', '```']
            text += [*outcome.error.splitlines(), '```']
    return '\n'.join(text) + '\n'


def _best(plan: SeedPlan, metric: str, cells: Sequence[Summary]) -> Summary | None:
    sign = -1 if plan.is_lower_better(metric) else 1
    measured = [cell for cell in cells if not math.isnan(cell.mean)]
    return max(measured, key=lambda cell: sign * cell.mean, default=None)


def _number(value: float, digits: int) -> str:
    return 'n/a' if math.isnan(value) else f'{value:.{digits}f}'


def _difference(plan: SeedPlan, cell: Summary, digits: int) -> str:
    if cell.method == plan.baseline:
        return 'baseline'
    if math.isnan(cell.difference):
        return 'n/a'
    text = f'{cell.difference:+.{digits}f}'
    if math.isnan(cell.ci_low):
        return f'{text} [needs 2 pairs]'
    return f'{text} [{cell.ci_low:+.{digits}f}, {cell.ci_high:+.{digits}f}]'


def _p_value(value: float) -> str:
    if math.isnan(value):
        return ''
    return '< 0.001' if value < 0.001 else f'{value:.3f}'


def _tuning_section(plan: SeedPlan, tuning: Sequence[Mapping], digits: int) -> list[str]:
    if not tuning:
        return []
    seeds = ', '.join(map(str, plan.tune_seeds))
    if plan.tune_folds:
        numbers = ', '.join(map(str, plan.tune_folds))
        seeds += f', fold {numbers} for all folds'
    text = [
        '',
        '## Tuning',
        '',
        f'{plan.decisive_metric} on the validation data, seeds {seeds}.',
        '',
    ]
    rows = []
    for row in tuning:
        note = 'chosen' if row['chosen'] else ''
        if row['chosen'] and row['at_edge']:
            note = 'chosen, at the edge of the grid: widen it'
        mean = math.nan if row['mean'] is None else row['mean'] * plan.scale
        fold = [] if row['fold'] is None else [row['fold']]
        rows.append(
            [
                *(row['method'], *fold, choice_label(row['choice'])),
                *(row['n'], _number(mean, digits), note),
            ]
        )
    fold = ['fold'] if plan.folds and not plan.tune_folds else []
    header = ['method', *fold, 'values', 'n', 'mean', '']
    text += markdown_table(header, rows, align=f'l{"r" * len(fold)}lrrl')
    if plan.allow_shared_split:
        text += [
            '',
            '**The test data may be the data that was tuned on** '
            '(`allow_shared_split`): the values above may be too good.',
        ]
    return text
