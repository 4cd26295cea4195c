"""Tables of a comparison over seeds."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from mmrank.experiments.plan import SeedPlan, choice_label
from mmrank.experiments.records import CURVE, FACTS, FINAL, write_rows
from mmrank.experiments.runs import Outcome, is_finite, read_facts, say
from mmrank.experiments.statistics import Summary, collect_values, summarise
from mmrank.files import write_atomically
from mmrank.pictures.seeds import draw_box_plot
from mmrank.pictures.tables import markdown_table


def report(
    console: Console,
    plan: SeedPlan,
    outcomes: Sequence[Outcome],
    tuning_outcomes: Sequence[Outcome],
    tuning: Sequence[Mapping],
) -> str:
    """Write the files of the report to the plan's folder, show its text and return it."""
    values = collect_values(plan, outcomes)
    cells = summarise(plan, values)
    every = [*tuning_outcomes, *outcomes]
    failures = [item for item in every if item.error]
    text = _write_markdown(plan, cells, tuning=tuning, failures=failures)
    folder = plan.out_dir
    _write_runs_csv(plan, every, folder / 'runs.csv')
    write_atomically(text.encode(), folder / 'report.md')
    unit = 'fold' if plan.folds else 'seed'
    draw_box_plot(values, plan.metrics, folder / 'boxplot.png', unit)
    say(console, text)
    for name in ('report.md', 'runs.csv', 'boxplot.png'):
        say(console, f'wrote {folder / name}')
    return text


def _write_runs_csv(plan: SeedPlan, outcomes: Sequence[Outcome], path: Path) -> Path:
    """Write a row for each run: a record, of which tools/research/results.py makes tables."""
    done = [outcome for outcome in outcomes if outcome.metrics]
    fields = [*FACTS, *sorted({key for outcome in done for key in outcome.metrics})]
    rows = []
    for outcome in done:
        run = outcome.run
        facts = read_facts(run)
        row = dict.fromkeys(fields, '')
        row.update({key: facts.get(key, '') for key in ('step', 'commit', 'seconds')})
        row.update(stage=run.stage, method=run.method, seed=run.seed)
        row.update(hash=run.folder.name[-8:], settings=json.dumps(dict(run.choice)))
        rows.append({**row, **outcome.metrics})
        # What it measured on its way; its seconds are the row above's.
        for step, found in facts['curve'] if run.stage == FINAL else []:
            known = {key: value for key, value in found.items() if is_finite(value)}
            rows.append({**row, **known, 'stage': CURVE, 'step': step, 'seconds': ''})
    return write_rows(path, rows, fields)


def _write_markdown(
    plan: SeedPlan,
    cells: Sequence[Summary],
    *,
    tuning: Sequence[Mapping] = (),
    failures: Sequence[Outcome] = (),
) -> str:
    """Return the report: the table, how to read it, the tuning, the failures."""
    digits = max(0, 4 - round(math.log10(plan.scale)))
    header = ['method', 'metric', 'n', 'mean ± std']
    header += [f'difference to {plan.baseline} [95 % CI]', 'p (paired t)']
    rows = []
    marks = []
    for metric in plan.metrics:
        own = [cell for cell in cells if cell.metric == metric]
        known = [cell for cell in own if not math.isnan(cell.mean)]
        best = max(known, key=lambda cell: cell.mean, default=None)
        for cell in own:
            value = f'{_number(cell.mean, digits)} ± {_number(cell.std, digits)}'
            difference = _difference(plan, cell, digits)
            p_value = '' if math.isnan(cell.p_value) else f'{cell.p_value:.3f}'
            p_value = '< 0.001' if cell.p_value < 0.001 else p_value
            rows.append([cell.method, metric, cell.n, value, difference, p_value])
            marks.append([column == 3 and cell is best for column in range(6)])
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
    if tuning:
        text += _tuning_section(plan, tuning, digits)
    if failures:
        text += ['', '## Failures', '']
        for outcome in failures:
            text += [f'- {outcome.run.label}:', '', '```', *outcome.error.splitlines(), '```']
    return '\n'.join(text) + '\n'


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


def _tuning_section(plan: SeedPlan, tuning: Sequence[Mapping], digits: int) -> list[str]:
    seeds = ', '.join(map(str, plan.tune_seeds))
    if plan.tune_folds:
        seeds += f', fold {", ".join(map(str, plan.tune_folds))} for all folds'
    rows = []
    for row in tuning:
        note = 'chosen' if row['chosen'] else ''
        if row['chosen'] and row['at_edge']:
            note = 'chosen, at the edge of the grid: widen it'
        mean = math.nan if row['mean'] is None else row['mean'] * plan.scale
        fold = [] if row['fold'] is None else [row['fold']]
        choice = choice_label(row['choice'])
        rows.append([row['method'], *fold, choice, row['n'], _number(mean, digits), note])
    fold = ['fold'] if plan.folds and not plan.tune_folds else []
    header = ['method', *fold, 'values', 'n', 'mean', '']
    text = [
        *('', '## Tuning', ''),
        f'{plan.decisive_metric} on the validation data, seeds {seeds}.',
        '',
        *markdown_table(header, rows, align=f'l{"r" * len(fold)}lrrl'),
    ]
    if plan.allow_shared_split:
        text += [
            '',
            '**The test data may be the data that was tuned on** '
            '(`allow_shared_split`): the values above may be too good.',
        ]
    return text
