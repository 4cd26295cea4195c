"""Tables of a comparison over seeds."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from mmrank.experiments.plan import Comparison
from mmrank.experiments.records import CURVE, FACTS, FINAL, write_rows
from mmrank.experiments.runs import Outcome, is_finite, read_facts, say
from mmrank.experiments.statistics import Summary, collect_values, summarise
from mmrank.files import write_atomically
from mmrank.pictures.seeds import draw_box_plot
from mmrank.pictures.tables import markdown_table


def report(
    console: Console,
    plan: Comparison,
    outcomes: Sequence[Outcome],
    trials: Sequence[Outcome] = (),
    notes: Sequence[str] = (),
) -> str:
    """Write report.md, runs.csv and boxplot.png to the plan's folder, and show the text.

    ``trials`` go into runs.csv alone; ``notes`` are lines of Markdown below the table.
    """
    values = collect_values(plan, outcomes)
    every = [*trials, *outcomes]
    split = 'Validation' if any(x.run.split == 'val' for x in outcomes) else 'Test'
    lines = _table(plan, summarise(plan, values), split)
    lines += notes
    failures = [item for item in every if item.error]
    if failures:
        lines += ['', '## Failures', '']
    for outcome in failures:
        lines += [f'- {outcome.run.label}:', '', '```', *outcome.error.splitlines(), '```']
    text = '\n'.join(lines) + '\n'
    folder = plan.out_dir
    _write_runs_csv(every, folder / 'runs.csv')
    write_atomically(text.encode(), folder / 'report.md')
    draw_box_plot(values, plan.metrics, folder / 'boxplot.png', f'{split} data', plan.unit)
    say(console, text)
    for name in ('report.md', 'runs.csv', 'boxplot.png'):
        say(console, f'wrote {folder / name}')
    return text


def _write_runs_csv(outcomes: Sequence[Outcome], path: Path) -> Path:
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


def _table(plan: Comparison, cells: Sequence[Summary], split: str) -> list[str]:
    """Lines of the table, and how to read it."""
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
    unit = plan.unit
    text = [
        *markdown_table(header, rows, marks, 'llrrrr'),
        '',
        f'{split} data; {unit}s {seeds}; std with ddof=1; the differences are paired by {unit}. No '
        'p-value is corrected for the number of methods or metrics.',
    ]
    if plan.scale != 1:
        text += ['', f'Metrics are multiplied by {plan.scale:g}.']
    if any(cell.n < len(plan.seeds) for cell in cells):
        text += ['', f'Some {unit}s are missing: see n, and the failures below.']
    return text


def _number(value: float, digits: int) -> str:
    return 'n/a' if math.isnan(value) else f'{value:.{digits}f}'


def _difference(plan: Comparison, cell: Summary, digits: int) -> str:
    if cell.method == plan.baseline:
        return 'baseline'
    if math.isnan(cell.difference):
        return 'n/a'
    text = f'{cell.difference:+.{digits}f}'
    if math.isnan(cell.ci_low):
        return f'{text} [needs 2 pairs]'
    return f'{text} [{cell.ci_low:+.{digits}f}, {cell.ci_high:+.{digits}f}]'
