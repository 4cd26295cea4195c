"""The table of a record, and the pictures of it."""

import collections
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from mmrank.errors import UserError
from mmrank.experiments.records import FACTS, read_final_rows, read_rows, values_of
from mmrank.experiments.statistics import compare_paired, shown_difference
from mmrank.pictures.figures import new_panels, save
from mmrank.pictures.names import metric_name
from mmrank.pictures.seeds import draw_box_plot
from mmrank.pictures.tables import markdown_table
from plans.loss_names import colours_of, loss_name

#: The baseline where each method has its own.
OWN = 'own'


class Record(NamedTuple):
    """The rows of a record at a step, and their metrics in percent."""

    rows: list[dict[str, str]]
    values: dict[str, dict[str, dict[str, float]]]  # By method, metric and seed
    trials: int  # Most trials of a method


def read_record(
    path: Path, metrics: list[str], baseline: str = '', step: str = '', scale: str = '100'
) -> Record:
    """Read the last step of each method, or ``step``; ``scale`` is 1 for a record in percent."""
    if not path.is_file():
        known = ', '.join(sorted(x.stem for x in path.parent.glob('*.csv')))
        raise UserError(f'there is no record {path.stem!r}. Fix: one of {known}')
    rows = [row for row in read_final_rows(path) if row.get('step')]
    last = {}
    for row in sorted(rows, key=lambda row: int(row['step'])):
        last[row['method']] = row['step']
    rows = [row for row in rows if row['step'] == (step or last[row['method']])]
    methods = list(dict.fromkeys(row['method'] for row in rows))
    baseline = (methods or [''])[0] if baseline in ('', OWN) else baseline
    is_whole = all(row.get(metric) for row in rows for metric in metrics)
    if baseline not in methods or not metrics or not is_whole:
        known = sorted({key for row in rows for key, value in row.items() if value} - {*FACTS})
        raise UserError(
            f'{path.name} has no table of {metrics} compared with {baseline!r} at step {step!r}. '
            f'Fix: metrics of {known} that each row has, a baseline of {methods}'
        )
    found = {metric: values_of(rows, metric, float(scale)) for metric in metrics}
    values = {
        name: {metric: found[metric][name] for metric in metrics}
        for name in (baseline, *(name for name in methods if name != baseline))
    }
    tuned = {
        (row['method'], row['settings']) for row in read_rows(path) if row.get('stage') == 'tune'
    }
    trials = collections.Counter(method for method, _ in tuned)
    return Record(rows, values, max(trials.values(), default=0))


def table_of(path: Path, metrics: list[str], differences: str = '1', **options: str) -> str:
    """The table of :func:`read_record` in Markdown, with its commit, cost and power."""
    rows, values, trials = read_record(path, metrics, **options)
    baseline = next(iter(values))
    first = metrics[0]
    whose = loss_name(baseline)
    peers = dict.fromkeys(values, baseline)
    if options.get('baseline') == OWN:
        whose = 'the same loss alone'
        peers = {name: name.partition(', ')[0] for name in values}
    peers = {name: peer for name, peer in peers.items() if name != peer}
    order = sorted(values, key=lambda name: -np.mean([*values[name][first].values()]))
    header = ['', 'runs', *map(metric_name, metrics)]
    cells = [
        [loss_name(name), len(values[name][first]), *map(spread, values[name].values())]
        for name in order
    ]
    best = [[column == 2 and name == order[0] for column in range(len(header))] for name in order]
    for metric in metrics[: int(differences)]:
        header.append(f'{metric_name(metric)} compared with {whose} (95 %)')
        compared = {
            name: compare_paired(values[name][metric], values[peer][metric])
            for name, peer in peers.items()
        }
        # Holm's correction.
        ordered = sorted((x['p_value'], name) for name, x in compared.items() if 'p_value' in x)
        sure = set()
        for place, (p_value, name) in enumerate(ordered):
            if p_value >= 0.05 / (len(ordered) - place):
                break
            sure.add(name)
        for name, cell, bold in zip(order, cells, best):
            cell.append(shown_difference(compared[name]) if name in peers else '')
            bold.append(name in sure)
    commits = ', '.join(sorted({row['commit'] for row in rows}))
    hours = sum(float(row['seconds']) for row in rows) / 3600
    cost = f'{hours:.1f} core-hours' if hours > 0.1 else f'{60 * hours:.0f} core-minutes'
    note = f'{len(rows)} trainings, {cost}, commit {commits}; '
    note += f'{trials} trials to tune each; ' if trials else ''
    note += _power(values, peers)
    if len(ordered) > 1:
        note += f" A bold difference holds after Holm's correction for {len(ordered)} comparisons."
    return '\n'.join([*markdown_table(header, cells, best), '', note, ''])


def spread(values: Mapping[str, float]) -> str:
    numbers = [*values.values()]
    std = f' ± {np.std(numbers, ddof=1):.2f}' if len(numbers) > 1 else ''
    return f'{np.mean(numbers):.2f}{std}'


def _power(values: Mapping[str, Mapping], peers: Mapping[str, str]) -> str:
    """The difference that this many pairs show in four comparisons of five, by a t test."""
    first = next(iter(next(iter(values.values()))))
    spreads: dict[int, list[float]] = {}
    for name, peer in peers.items():
        own, other = (values[x][first] for x in (name, peer))
        shared = own.keys() & other.keys()
        if len(shared) > 1:
            gaps = [own[seed] - other[seed] for seed in shared]
            spreads.setdefault(len(shared), []).append(np.std(gaps, ddof=1))
    if not spreads:
        return 'one run says nothing of the spread.'
    pairs = max(spreads)
    spread = float(np.median(spreads[pairs]))
    needed = stats.t.ppf(0.975, pairs - 1)
    seen = (needed + stats.t.ppf(0.8, pairs - 1)) * spread / math.sqrt(pairs)
    return f'{pairs} pairs tell a difference of {seen:.1f} {first} in four cases of five.'


def draw_boxes(values: Mapping[str, Mapping], metrics: list[str], path: Path) -> None:
    """Draw a box for each method, with the name and the colour of its loss."""
    shades = dict(zip(values, colours_of([*values])))
    labels = {name: loss_name(name) for name in values}
    draw_box_plot(values, metrics, path, labels=labels, colours=shades)


def draw_curves(rows: Iterable[Mapping[str, str]], metric: str, scale: float, path: Path) -> None:
    """Draw a metric of a record against the iterations: mean and range of the seeds."""
    curves: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        points = curves.setdefault(row['method'], {}).setdefault(int(row['step']), [])
        points.append(scale * float(row[metric]))
    # A method that was measured at its end alone has no curve.
    most = max(map(len, curves.values()))
    curves = {name: points for name, points in curves.items() if len(points) > 1 or most == 1}
    figure, ((axis,),) = new_panels(1, 1, 6.0, 4.0)
    for shade, (name, points) in zip(colours_of(list(curves)), curves.items()):
        steps, values = zip(*sorted(points.items()))
        label = loss_name(name)
        axis.plot(steps, list(map(np.mean, values)), color=shade, marker='.', label=label)
        low, high = zip(*((min(own), max(own)) for own in values))
        axis.fill_between(steps, low, high, color=shade, alpha=0.12)
    axis.set_xlabel('iterations')
    axis.set_ylabel(f'{metric_name(metric)}, mean and range of the seeds')
    axis.legend(fontsize=8, frameon=False)
    save(figure, path)
