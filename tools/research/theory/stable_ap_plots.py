"""Figures of stable AP's bounds and of the tracked mean positive score."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mmrank.visualization.figures import label_panels, legend_above, new_panels, save
from mmrank.visualization.palette import colour
from theory.stable_ap import (
    BoundRow,
    DifferenceRow,
    DifferenceSetting,
    Theorem1Sides,
    TrackingError,
    WeightSumRow,
)


def plot_theorem1(
    sides: Theorem1Sides,
    sides_title: str,
    rows: Sequence[BoundRow],
    weights: Sequence[WeightSumRow],
    path: str | os.PathLike,
) -> Path:
    """Theorem 1 on random lists, its largest ratios by rho and n+, and the weight sums."""
    figure, axes = new_panels(1, 3, width=4.0, height=3.6)
    scatter, ratios, sums = axes[0]
    order = sides.risk.argsort()
    for index, (values, label) in enumerate(
        (
            (sides.bound, r'$\frac{q}{2}\,h(\cdot)$, theorem 1'),
            (sides.jensen, 'Jensen alone, eq. 3'),
            (sides.surrogate_risk, r'surrogate risk, eq. 2'),
        )
    ):
        style = dict(linestyle='', marker='os^'[index], markersize=3, markeredgewidth=0, alpha=0.7)
        x = sides.risk[order]
        scatter.plot(x, values[order], color=colour(index), label=label, **style)
    scatter.plot([0, 1], [0, 1], color='black', lw=1, label='1 - AP itself')
    scatter.set(title=sides_title, xlabel='AP risk 1 - AP', ylabel='upper bounds of it')
    scatter.set(xlim=(0, 1), ylim=(0, 1.35))
    scatter.legend(fontsize=7, frameon=False, loc='lower right')

    for index, num_pos in enumerate(sorted({r.num_pos for r in rows})):
        own = [r for r in rows if r.num_pos == num_pos]
        rho = [r.rho for r in own]
        for values, name, marker, line in (
            ([r.worst_bound for r in own], 'searched', 'o', '-'),
            ([r.random_bound for r in own], 'random', 'x', ':'),
        ):
            style = dict(color=colour(index), marker=marker, markersize=4, linestyle=line)
            ratios.plot(rho, values, label=f'{name}, n+ = {num_pos}', **style)
    ratios.axhline(1, color='black', lw=1)
    place = dict(xycoords=('axes fraction', 'data'), xytext=(0, -9), textcoords='offset points')
    ratios.annotate('theorem 1: at most 1', (0.03, 1), fontsize=7, **place)
    ratios.set(title='largest surrogate risk / bound', xlabel=r'imbalance $\rho$ = n-/n+')
    ratios.set(xscale='log', ylim=(0.6, 1.02))
    ratios.legend(fontsize=7, frameon=False, loc='upper right', bbox_to_anchor=(1, 0.93))

    for index, rho_bound in enumerate(sorted({w.rho_bound for w in weights})):
        own = [w for w in weights if w.rho_bound == rho_bound]
        n = [w.num_pos for w in own]
        label = rf'$w$, $\rho B$ = {rho_bound:g}'
        sums.plot(n, [w.mean_weight for w in own], color=colour(index), label=label)
        sums.axhline(own[0].upper, color=colour(index), lw=0.8, linestyle='--')
    inverse = [w.mean_inverse_rank for w in own]
    sums.plot(n, inverse, color='0.4', linestyle='-.', label=r'$1/r_i$ (eq. 3)')
    sums.axhline(1, color='black', lw=1)
    sums.set(title='mean weight; dashed: q/2', xlabel='positives n+', xscale='log', ylim=(0.9, 2.6))
    sums.legend(fontsize=7, frameon=False, loc='upper right')
    label_panels(axes)
    return save(figure, path)


def plot_bounded_difference(
    runs: Mapping[str, tuple[DifferenceSetting, Sequence[DifferenceRow]]], path: str | os.PathLike
) -> Path:
    """Largest change by number of samples against lemma 1, a row of panels for each setting."""
    figure, axes = new_panels(len(runs), 2, width=4.4, height=2.9)
    lines = (
        ('worst', 'stable AP, worst list found'),
        ('random', 'stable AP, random lists'),
        ('ap_worst', '1 - AP, worst list found'),
    )
    for line, (name, (setting, rows)) in zip(axes, runs.items()):
        span = (1 + setting.eps**2) ** 0.5 - setting.eps
        for axis, replaced in zip(line, ('positive', 'negative')):
            own = [r for r in rows if r.replaced == replaced]
            n = [r.count for r in own]
            axis.plot(n, [r.limit for r in own], color='black', label='lemma 1')
            axis.axhline(span, color='0.5', linestyle='--', lw=1, label='range of the loss')
            for index, (key, label) in enumerate(lines):
                style = dict(color=colour(index), marker='os^'[index], markersize=4)
                axis.plot(n, [getattr(r, key) for r in own], label=label, **style)
            axis.set(title=f'one {replaced} replaced, {name}', xlabel=f'{replaced}s n')
            axis.set(xscale='log', yscale='log')
        line[0].set_ylabel('largest change')
    label_panels(axes)
    legend_above(figure, axes[0, 0], 3)
    return save(figure, path)


def plot_mean_score_tracking(tracking: TrackingError, path: str | os.PathLike) -> Path:
    """Error of the tracked mean, mean and spread over the trials."""
    figure, axes = new_panels(1, 1, width=5.6, height=3.2)
    axis = axes[0, 0]
    steps = np.arange(1, len(tracking.drift) + 1)
    names = {'plain': 'plain EMA', 'exact': 'exact, eq. 6'}
    for index, (mode, name) in enumerate(names.items()):
        error = tracking.error[mode].numpy()
        mean, std = error.mean(1), error.std(1)
        axis.plot(steps, mean, color=colour(index), label=name)
        axis.fill_between(steps, mean - std, mean + std, color=colour(index), alpha=0.2, lw=0)
    label = r'$-(1-\lambda)/\lambda \cdot$ drift'
    axis.axhline(-tracking.lag, color='black', lw=1, linestyle='--', label=label)
    axis.axhline(0, color='0.6', lw=0.8)
    stop = int((tracking.drift != 0).sum())
    axis.axvline(stop, color='0.6', lw=0.8, linestyle=':')
    above = axis.get_xaxis_transform()
    for x, text, side in (
        (stop - 8, 'weights drift', 'right'),
        (stop + 8, 'weights frozen', 'left'),
    ):
        axis.text(x, 0.9, text, transform=above, ha=side, fontsize=8, color='0.35')
    axis.set(xlabel='step', ylabel=r'estimate of $\mu$ minus true mean', xlim=(1, steps[-1]))
    axis.set_ylim(-1.15 * tracking.lag, 0.25 * tracking.lag)
    axis.legend(fontsize=8, frameon=False, loc='center', bbox_to_anchor=(0.55, 0.5))
    return save(figure, path)
