"""Tables of a comparison over seeds."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from mmrank.experiments.plan import Comparison
from mmrank.experiments.records import CURVE, FACTS, FINAL, Values, write_rows
from mmrank.experiments.runs import Outcome, is_finite, read_facts, say
from mmrank.experiments.statistics import collect_values, compare_paired, shown_difference
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
    lines = _table(plan, values, split)
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


def _table(plan: Comparison, values: Values, split: str) -> list[str]:
    """Lines of the table, and how to read it."""
    digits = max(0, 4 - round(math.log10(plan.scale)))
    header = ['method', 'metric', 'n', 'mean ± std']
    header += [f'difference to {plan.baseline} [95 % CI]', 'p (paired t)']
    rows = []
    marks = []
    for metric in plan.metrics:
        own = {method.name: values[method.name][metric] for method in plan.methods}
        numbers = {name: np.array([x[seed] for seed in sorted(x)]) for name, x in own.items()}
        means = {name: found.mean() for name, found in numbers.items() if len(found)}
        best = max(means, key=means.__getitem__, default=None)
        for name, found in numbers.items():
            mean = f'{means[name]:.{digits}f}' if name in means else 'n/a'
            std = f'{found.std(ddof=1):.{digits}f}' if len(found) > 1 else 'n/a'
            difference = 'baseline'
            p_value = ''
            if name != plan.baseline:
                compared = compare_paired(own[name], own[plan.baseline])
                difference = shown_difference(compared, digits) or 'n/a'
                difference += ' [needs 2 pairs]' * (compared['pairs'] == 1)
                if 'p_value' in compared:
                    p_value = f'{compared["p_value"]:.3f}'
                    p_value = '< 0.001' if compared['p_value'] < 0.001 else p_value
            rows.append([name, metric, len(found), f'{mean} ± {std}', difference, p_value])
            marks.append([column == 3 and name == best for column in range(6)])
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
    if any(row[2] < len(plan.seeds) for row in rows):
        text += ['', f'Some {unit}s are missing: see n, and the failures below.']
    return text
