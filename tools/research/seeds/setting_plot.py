"""A metric over the values of one setting, from the runs of a comparison."""

import csv
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mmrank.visualization.figures import new_panels, save
from mmrank.visualization.palette import colours_of, loss_name, metric_name

#: Metric values over seeds, by method and value of the setting.
SettingRuns = Mapping[str, Mapping[float, Sequence[float]]]


def read_setting_runs(path: str | os.PathLike, metric: str) -> SettingRuns:
    """Read the ``runs.csv`` of ``tools/benchmarks/run_seeds.py``.

    Args:
        path: The file. Its methods are named ``<method>-<value>``, as in ``soprc-0.25``.
        metric: Key of the metric.

    Returns:
        Values of the final runs.

    Raises:
        ValueError: If a method has no value in its name, or there is no run with the metric.
    """
    found: dict[str, dict[float, list[float]]] = {}
    with open(path, newline='', encoding='utf-8') as file:
        for row in csv.DictReader(file):
            if row['stage'] != 'final' or row['metric'] != metric:
                continue
            method, _, setting = row['method'].rpartition('-')
            try:
                setting = float(setting)
            except ValueError:
                method = ''
            if not method:
                raise ValueError(
                    f'{path}: the method {row["method"]!r} must be named '
                    '<method>-<value>, for example soprc-0.25'
                )
            values = found.setdefault(method, {}).setdefault(setting, [])
            values.append(float(row['value']))
    if not found:
        raise ValueError(f'{path} has no final run with {metric}')
    return found


def plot_setting(
    runs: SettingRuns,
    path: str | os.PathLike,
    *,
    setting: str,
    metric: str,
    mark: float | None = None,
    mark_name: str = '',
) -> Path:
    """Draw mean and standard deviation over seeds against a setting.

    Args:
        runs: See :func:`read_setting_runs`.
        path: PNG file to write.
        setting: Name of the horizontal axis, which is logarithmic.
        metric: Key of the metric, named in words at the vertical axis.
        mark: Value of the setting to mark by a line, or None.
        mark_name: Name of the line.

    Returns:
        ``path``.
    """
    figure, ((axis,),) = new_panels(1, 1, 5.2, 3.4)
    every = sorted({x for by_setting in runs.values() for x in by_setting})
    colours = colours_of(list(runs))
    for index, (method, by_setting) in enumerate(runs.items()):
        # A little apart, so that no bar hides another.
        shift = 1 + 0.02 * (index - (len(runs) - 1) / 2)
        x = np.array(sorted(by_setting))
        mean = [np.mean(by_setting[value]) for value in x]
        spread = [
            np.std(by_setting[value], ddof=1) if len(by_setting[value]) > 1 else math.nan
            for value in x
        ]
        axis.errorbar(
            x * shift,
            mean,
            spread,
            label=loss_name(method),
            color=colours[index],
            marker='os^Dv*'[index % 6],
            capsize=3,
            linewidth=1.4,
        )
    if mark is not None:
        axis.axvline(mark, color='0.5', linestyle=':', label=mark_name)
    axis.set_xscale('log')
    axis.set_xticks(every, [f'{x:g}' for x in every])
    axis.minorticks_off()
    axis.set_xlabel(setting)
    axis.set_ylabel(metric_name(metric))
    axis.legend(fontsize=8, frameon=False)
    return save(figure, path)
