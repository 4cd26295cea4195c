"""Temperatures over a training, and by the frequency of classes."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mmrank.visualization.figures import new_panels, save, shorten
from mmrank.visualization.palette import colour
from mmrank.visualization.temperatures.history import LEVELS, TemperatureHistory
from mmrank.visualization.temperatures.statistics import ClassTemperature, RankCorrelation

# Vermilion and blue, as heat is drawn.
HOT, COLD = colour(0), colour(1)
# Up to this many classes each has its name below.
_NAMED_CLASSES = 20


def plot_history(
    history: TemperatureHistory, path: str | os.PathLike, title: str = '', unit: str = 'epoch'
) -> Path:
    """Histograms over time and at the end.

    Args:
        history: With at least one reading.
        path: Image file to write.
        title: Of the figure.
        unit: What the steps of the history count.

    Returns:
        ``path``.

    Raises:
        ValueError: If there is no reading.
    """
    if not history.steps:
        raise ValueError('a history without a reading cannot be drawn')
    figure, axes = new_panels(1, 2, width=4.2, height=3.4)
    over_time, final = axes[0]
    counts = np.array(history.counts, dtype=float)
    shares = 100 * counts / counts.sum(1, keepdims=True)
    steps = np.array(history.steps, dtype=float)
    quantiles = np.array(history.quantiles)
    if len(steps) > 1:
        # A column from halfway before its step to halfway after.
        middles = (steps[1:] + steps[:-1]) / 2
        times = np.concatenate(
            [[2 * steps[0] - middles[0]], middles, [2 * steps[-1] - middles[-1]]]
        )
        mesh = over_time.pcolormesh(times, history.edges, shares.T, cmap='Greys', rasterized=True)
        bar = figure.colorbar(mesh, ax=over_time, pad=0.02)
        bar.set_label('% of samples', fontsize=8)
        bar.ax.tick_params(labelsize=7)
        over_time.set_xlim(times[0], times[-1])
    for level, style in ((0.95, ':'), (0.5, '-'), (0.05, ':')):
        over_time.plot(
            steps,
            quantiles[:, LEVELS.index(level)],
            color=HOT if level >= 0.5 else COLD,
            linestyle=style,
            linewidth=1.5,
            marker='o' if len(steps) < 3 else None,
            label=f'{100 * level:g} % below',
        )
    low, high = _used_range(history)
    over_time.set(ylim=(low, high), xlabel=unit, ylabel=r'temperature $\tau$')
    over_time.legend(fontsize=7, frameon=True, framealpha=0.8)
    over_time.grid(False)

    for place, alpha in ((0, 0.35), (len(steps) - 1, 1.0)):
        if len(steps) == 1 and place == 0 and alpha < 1:
            continue
        final.stairs(
            shares[place],
            history.edges,
            fill=True,
            color=HOT if alpha == 1 else '#999999',
            alpha=0.75 if alpha == 1 else 0.6,
            label=f'{unit} {history.steps[place]:,}',
        )
    final.set(xlim=(low, high), xlabel=r'temperature $\tau$', ylabel='% of samples')
    final.legend(fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=10)
    return save(figure, path)


def plot_classes(
    rows: Sequence[ClassTemperature],
    correlation: RankCorrelation,
    path: str | os.PathLike,
    title: str = '',
    num_extreme: int = 600,
) -> Path:
    """Mean temperature by frequency, and who the hot and cold samples are.

    The right panel is the paper's figure 5: for each class, the share of its samples among the
    hottest and among the coldest of all.

    Args:
        rows: Classes; those without a sample are left out.
        correlation: Of frequency and mean temperature.
        path: Image file to write.
        title: Of the figure.
        num_extreme: How many samples count as hottest and coldest.

    Returns:
        ``path``.
    """
    rows = sorted((r for r in rows if r.count), key=lambda r: -r.count)
    counts = np.array([r.count for r in rows])
    means = np.array([r.mean for r in rows])
    errors = np.array([r.std for r in rows]) / np.sqrt(counts)
    figure, axes = new_panels(1, 2, width=4.6, height=3.6)
    frequency, shares = axes[0]
    frequency.errorbar(
        counts,
        means,
        yerr=errors,
        linestyle='',
        marker='o',
        markersize=4,
        elinewidth=0.8,
        color=COLD,
    )
    if counts.min() * 3 < counts.max():
        frequency.set_xscale('log')
    if len(rows) <= _NAMED_CLASSES:
        for row in rows:
            frequency.annotate(
                shorten(row.name, 14),
                (row.count, row.mean),
                xytext=(4, 3),
                textcoords='offset points',
                fontsize=6.5,
                color='#555555',
            )
    frequency.set(
        xlabel='samples of the class',
        ylabel=r'mean temperature $\tau$ $\pm$ its standard error',
        title=f'Spearman {correlation}',
    )
    frequency.title.set_fontsize(9)

    places = np.arange(len(rows))
    for sign, colour_, name in ((1, HOT, 'hot_share'), (-1, COLD, 'cold_share')):
        values = np.array([getattr(r, name) for r in rows])
        shares.bar(
            places,
            sign * 100 * values,
            width=0.85,
            color=colour_,
            label=f'among the {num_extreme:,} ' + ('hottest' if sign > 0 else 'coldest'),
        )
    shares.axhline(0, color='black', linewidth=0.8)
    shares.yaxis.set_major_formatter(lambda y, _: f'{abs(y):g}')
    shares.set(xlabel='classes, the most frequent first', ylabel='% of the samples of the class')
    if len(rows) <= _NAMED_CLASSES:
        shares.set_xticks(
            places, [shorten(r.name, 14) for r in rows], rotation=60, ha='right', fontsize=7
        )
        shares.set_xlabel('')
    shares.legend(fontsize=7, frameon=False)
    figure.suptitle(title, fontsize=10)
    return save(figure, path)


def _used_range(history: TemperatureHistory) -> tuple[float, float]:
    """Where there is a sample at any time, one bin more on each side."""
    used = np.flatnonzero(np.array(history.counts).sum(0))
    last = len(history.edges) - 1
    first, end = max(used[0] - 1, 0), min(used[-1] + 2, last)
    return float(history.edges[first]), float(history.edges[end])
