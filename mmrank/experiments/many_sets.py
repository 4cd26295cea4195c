"""A comparison of methods on many sets: the differences on each, and their mean over the sets."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from mmrank.errors import UserError
from mmrank.experiments.records import Values, read_values
from mmrank.experiments.statistics import compare_paired, shown_difference

#: Figures by set, method, metric and seed.
Sets = Mapping[str, Values]
#: Of :func:`difference_rows`; the p-value is of a sign test.
COLUMNS = ('compared with', 'mean over sets (95 %)', 'median', 'ahead on', 'worst set')


def read_sets(
    paths: Iterable[str | os.PathLike], metrics: Sequence[str] = (), scale: float = 1.0
) -> dict[str, Values]:
    """Read a record of each set, which is named as its file, or as the folder of a ``runs.csv``.

    Raises:
        UserError: If two sets have one name, a record cannot be read or lacks a metric, or the
            sets have no methods in common.
    """
    sets: dict[str, Values] = {}
    for path in map(Path, paths):
        name = path.absolute().parent.name if path.name == 'runs.csv' else path.stem
        if name in sets:
            raise UserError(f'{path} is a second set {name!r}', 'files or folders of other names')
        sets[name] = read_values(path, metrics, scale)
    methods = [[*values] for values in sets.values()]
    for name, own in zip(sets, methods):
        if {*own} != {*methods[0]}:
            raise UserError(f'{name} has {own}, another set {methods[0]}', 'sets of one plan')
    return sets


def means(sets: Sets, method: str, metric: str) -> dict[str, float]:
    """Mean over the seeds of a method, by set."""
    return {name: float(np.mean([*x[method][metric].values()])) for name, x in sets.items()}


def compare_sets(sets: Sets, ours: str, metric: str) -> tuple[dict, dict]:
    """What ours gains compared with each other method: by set, and on average.

    A set's difference is paired by seed, and the mean is of these: the spread over the sets, of
    which its interval is, holds the spread over the seeds. Both are of :func:`compare_paired`, by
    method.

    Raises:
        UserError: If ours is not among the methods, or shares no seed of a set with another one.
    """
    methods = [*next(iter(sets.values()))]
    if ours not in methods:
        raise UserError(f'the records have no method {ours!r}', f'one of {", ".join(methods)}')
    on_each = {}
    on_average = {}
    for other in methods:
        if other == ours:
            continue
        on_each[other] = {}
        for name, values in sets.items():
            found = compare_paired(values[ours][metric], values[other][metric])
            if not found['pairs']:
                what = f'set {name} has no seed with {metric} of both {ours} and {other}'
                raise UserError(what, 'run its plan again, which trains what is missing')
            on_each[other][name] = found
        gains = {name: found['difference'] for name, found in on_each[other].items()}
        on_average[other] = compare_paired(gains, dict.fromkeys(gains, 0.0))
    return on_each, on_average


def mean_rows(sets: Sets, metric: str) -> list[list[str]]:
    """A row of a table for each set, and one for their mean: a method a column."""
    columns = [means(sets, method, metric) for method in next(iter(sets.values()))]
    rows = [[name, *(f'{own[name]:.1f}' for own in columns)] for name in sets]
    return [*rows, ['mean', *(f'{np.mean([*own.values()]):.1f}' for own in columns)]]


def difference_rows(on_each: Mapping, on_average: Mapping) -> list[list[str]]:
    """A row of :data:`COLUMNS` for each other method, of :func:`compare_sets`."""
    rows = []
    for other, found in on_each.items():
        gains = {name: x['difference'] for name, x in found.items()}
        worst = min(gains, key=gains.__getitem__)
        ahead = sum(gain > 0 for gain in gains.values())
        unequal = sum(gain != 0 for gain in gains.values())
        p_value = stats.binomtest(ahead, unequal).pvalue if unequal else 1.0
        median = f'{np.median([*gains.values()]):+.2f}'
        counts = f'{ahead} of {len(gains)}, p = {p_value:.2g}'
        shown = shown_difference(on_average[other])
        rows.append([other, shown, median, counts, f'{worst} {gains[worst]:+.1f}'])
    return rows
