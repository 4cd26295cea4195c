"""Class size against temperature over trainings with other class orders."""

import os
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from mmrank.visualization.figures import new_panels, save, shorten
from mmrank.visualization.palette import colour
from research.temperature_orders.orders import OrderRuns, OrderTest


def plot_orders(runs: OrderRuns, found: OrderTest, path: str | os.PathLike) -> Path:
    """What the size of a class does, and what its images do.

    Left: temperature over the mean of its class and training; every class of every training is a
    point, the mean over trainings has its 95 % interval.
    Right: temperature of a class over the mean of all classes, in single trainings and on average.

    Args:
        runs: The trainings.
        found: The result of :func:`order_test`.
        path: Image file to write.

    Returns:
        ``path``.
    """
    figure, axes = new_panels(1, 2, width=4.6, height=3.6)
    by_size, by_class = axes[0]
    percent = 100 * np.expm1(found.relative)
    by_size.axhline(0, color='black', linewidth=0.6)
    by_size.plot(
        runs.counts.ravel(),
        percent.ravel(),
        linestyle='',
        marker='o',
        markersize=3,
        color='#999999',
        alpha=0.7,
    )
    # The k-th largest class of every training.
    order = np.argsort(-runs.counts, axis=1, kind='stable')
    sizes = np.take_along_axis(runs.counts, order, 1).mean(0)
    ranked = np.take_along_axis(percent, order, 1)
    number = len(ranked)
    error = ranked.std(0, ddof=1) / np.sqrt(number)
    by_size.errorbar(
        sizes,
        ranked.mean(0),
        yerr=student.ppf(0.975, number - 1) * error,
        linestyle='',
        marker='o',
        markersize=5,
        elinewidth=1.2,
        color=colour(1),
        label=f'mean of {number} trainings, 95 % interval',
    )
    ends = np.array([runs.counts.min(), runs.counts.max()])
    middle = np.log10(runs.counts).mean()
    line = np.expm1(found.slope * (np.log10(ends) - middle))
    by_size.plot(ends, 100 * line, color=colour(0), label='least squares')
    if ends[0] * 3 < ends[1]:
        by_size.set_xscale('log')
    by_size.set(
        xlabel='samples of the class',
        ylabel='temperature over mean of its class, %',
        title=f'{100 * np.expm1(found.slope):+.1f} % per ten-fold size, p = {found.p_value:.2g}',
    )
    by_size.title.set_fontsize(9)
    by_size.legend(fontsize=7, frameon=False)

    logs = np.log(runs.temperatures)
    rows = 100 * np.expm1(logs - logs.mean(1, keepdims=True))
    means = rows.mean(0)
    hottest = np.argsort(-means)
    places = np.arange(len(means))
    by_class.axhline(0, color='black', linewidth=0.6)
    for row in rows:
        by_class.plot(
            places, row[hottest], linestyle='', marker='o', markersize=3, color='#999999', alpha=0.7
        )
    by_class.plot(places, means[hottest], linestyle='', marker='_', markersize=14, color=colour(1))
    by_class.set(ylabel='temperature over mean of the training, %', title='what images show')
    by_class.title.set_fontsize(9)
    by_class.set_xticks(
        places, [shorten(runs.classes[i], 14) for i in hottest], rotation=60, ha='right', fontsize=7
    )
    return save(figure, path)
