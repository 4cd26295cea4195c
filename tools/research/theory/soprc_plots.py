"""Figures of SOPRC's simulations."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mmrank.visualization.figures import label_panels, legend_above, new_panels, save
from mmrank.visualization.palette import LOSS_STYLES, colour
from theory.soprc import (
    AVERAGE_PRECISION,
    DISTRIBUTIONS,
    SOPRC,
    SOPRC_SURROGATES,
    SOPRC_WITHOUT_V,
    BiasRow,
    population_auprc,
)
from theory.soprc_scores import (
    INNER,
    InterpolationErrorRow,
    ScoreVectorNoise,
    mean_interpolated_scores,
)

_STYLES = {
    AVERAGE_PRECISION: dict(color=colour(4), marker='o', linestyle='-'),
    SOPRC: dict(color=LOSS_STYLES['soprc'].colour, marker='s', linestyle='-'),
    SOPRC_WITHOUT_V: dict(color=colour(1), marker='^', linestyle='--'),
    SOPRC_SURROGATES: dict(color=colour(3), marker='D', linestyle=':'),
}


def plot_densities(path: str | os.PathLike) -> Path:
    """Densities of the scores of positives and negatives: SOPRC (NeurIPS 2022), figure 3."""
    figure, axes = new_panels(1, len(DISTRIBUTIONS))
    for axis, distribution in zip(axes[0], DISTRIBUTIONS):
        sides = {'negatives': distribution.negative, 'positives': distribution.positive}
        ends = [side.ppf((1e-3, 1 - 1e-3)) for side in sides.values()]
        # A little more, to show where a density ends.
        score = np.linspace(np.min(ends) - 0.05, np.max(ends) + 0.05, 600)
        for index, (name, side) in enumerate(sides.items()):
            density = side.pdf(score)
            axis.plot(score, density, color=colour(1 - index), label=name)
            axis.fill_between(score, density, color=colour(1 - index), alpha=0.2)
        axis.set(title=f'{distribution.name}, {distribution.formula}', xlabel='score')
        axis.set_ylim(0, None)
    axes[0, 0].set_ylabel('density')
    axes[0, 0].legend(fontsize=8, frameon=False)
    label_panels(axes)
    return save(figure, path)


def plot_sampling_rate_bias(
    by_rate: Sequence[BiasRow], by_size: Sequence[BiasRow], prior: float, path: str | os.PathLike
) -> Path:
    """Bias and spread by sampling rate (one batch size), and bias by batch size (one rate)."""
    figure, axes = new_panels(3, len(DISTRIBUTIONS))
    size = by_rate[0].batch_size
    rate = by_size[0].sampling_rate
    for (top, middle, low), distribution in zip(axes.T, DISTRIBUTIONS):
        known = sorted({r.sampling_rate for r in by_rate})
        rates = np.geomspace(known[0], known[-1], 16)
        truth = population_auprc(distribution, prior)
        bias = [truth - population_auprc(distribution, r) for r in rates]
        style = dict(color='0.3', linewidth=1, label=r'AUPRC at prior $\pi_0$ (population)')
        top.plot(rates, bias, **style)
        for axis in (top, middle):
            axis.axvline(prior, color='0.6', linewidth=0.8, linestyle=':')
            axis.set_xscale('log')
            _ticks(axis, known)
        for index, (estimator, style) in enumerate(_STYLES.items()):
            # Side by side, or one would hide the others.
            shift = 1.03 ** (index - 1)
            rows = _rows(by_rate, distribution.name, estimator)
            x = [r.sampling_rate * shift for r in rows]
            _draw_bias(top, x, rows, estimator, style)
            middle.plot(x, [r.std for r in rows], markersize=4, **style)
            rows = _rows(by_size, distribution.name, estimator)
            x = [r.batch_size * shift for r in rows]
            _draw_bias(low, x, rows, estimator, style)
        low.set_xscale('log')
        _ticks(low, sorted({r.batch_size for r in by_size}))
        for axis in (top, low):
            axis.axhline(0, color='0.6', linewidth=0.8)
        label = rf'sampling rate $\pi_0$ (batch of {size})'
        top.set(title=f'{distribution.name}, {distribution.formula}', xlabel=label)
        middle.set(title=f'{distribution.name}, one batch', xlabel=label, ylim=(0, None))
        low.set(title=rf'{distribution.name}, $\pi_0$ = {rate:g}', xlabel='batch size')
    # A word at the line once is enough.
    place = dict(xycoords=('data', 'axes fraction'), xytext=(-3, 0), textcoords='offset points')
    style = dict(rotation=90, fontsize=7, color='0.4', horizontalalignment='right')
    axes[0, 0].annotate(rf'prior $\pi$ = {prior:g}', (prior, 0.04), **place, **style)
    axes[0, 0].set_ylabel(r'bias of the risk $\pm$ 2 s.e.')
    axes[1, 0].set_ylabel('std of one estimate')
    axes[2, 0].set_ylabel(r'bias of the risk $\pm$ 2 s.e.')
    label_panels(axes)
    legend_above(figure, axes[0, 0], 5)
    return save(figure, path)


def _rows(rows, distribution: str, estimator: str) -> list[BiasRow]:
    return [r for r in rows if r.distribution == distribution and r.estimator == estimator]


def _draw_bias(axis, x, rows, label, style) -> None:
    errors = [2 * r.standard_error for r in rows]
    style = dict(style, capsize=2, markersize=4, linewidth=1.3)
    axis.errorbar(x, [r.bias for r in rows], yerr=errors, label=label, **style)


def _ticks(axis, values: Sequence[float]) -> None:
    axis.set_xticks(values, [f'{v:g}' for v in values], rotation=45)
    axis.set_xticks([], minor=True)


def plot_interpolation_error(
    rows: Sequence[InterpolationErrorRow], trials: int, seed: int, path: str | os.PathLike
) -> Path:
    """The scores that phi approximates (``trials`` batches), and its errors against their bound."""
    figure, axes = new_panels(2, len(DISTRIBUTIONS), height=3.0)
    length = 200
    x = (np.arange(length) + 0.5) / length
    for (top, low), distribution in zip(axes.T, DISTRIBUTIONS):
        for index, count in enumerate((4, 16)):
            mean, std = mean_interpolated_scores(distribution, count, length, trials, seed)
            top.plot(x, mean, color=colour(index), label=rf'mean $\phi$, $n_+$ = {count}')
            top.fill_between(x, mean - std, mean + std, color=colour(index), alpha=0.18)
        line = dict(color='black', linewidth=1, linestyle='--')
        top.plot(x, distribution.quantile(x), label='p, all positives', **line)
        name = distribution.formula.split('/')[1]
        top.set(title=f'{distribution.name} {name}', xlabel='quantile of the positives')
        own = [r for r in rows if r.distribution == distribution.name]
        n = [r.num_scores for r in own]
        curves = [
            ('expected_error', 0, r'E $\phi$ of random scores'),
            ('std', 2, r'std of one $\phi$ (mean)'),
        ]
        if any(r.bound > 0 for r in own):
            low.plot(n, [r.bound for r in own], label=r"bound $\max|p''|/(8 n_+^2)$", **line)
            curves.insert(0, ('error', 1, r'$\phi$ of scores at the quantiles $i/n_+$'))
        else:
            text = "p'' = 0: no error at the quantiles $i/n_+$"
            low.text(0.03, 0.06, text, transform=low.transAxes, fontsize=8)
        for key, index, label in curves:
            style = dict(color=colour(index), marker='os^'[index], markersize=4)
            low.plot(n, [getattr(r, key) for r in own], label=label, **style)
        low.set(xscale='log', yscale='log', xlabel=r'scores of a batch $n_+$')
        _ticks(low, n)
        low.set_title(f'largest error, quantiles {INNER[0]:g} to {INNER[1]:g}')
    axes[0, 0].set_ylabel('score')
    axes[1, 0].set_ylabel('error of the score')
    axes[0, 0].legend(fontsize=7, frameon=False)
    axes[1, 0].legend(fontsize=7, frameon=False, loc='lower left', labelspacing=0.3)
    label_panels(axes)
    return save(figure, path)


def plot_score_vector_noise(runs: Sequence[ScoreVectorNoise], path: str | os.PathLike) -> Path:
    """Distance and variance of v against proposition 1, a colour for each beta."""
    figure, axes = new_panels(1, 2, width=4.2, height=3.0)
    left, right = axes[0]
    for index, run in enumerate(runs):
        marks = dict(color=colour(index), marker='o', markersize=3, linestyle='')
        every = slice(0, None, max(len(run.steps) // 20, 1))
        label = rf'$\beta$ = {run.momentum:g}'
        left.plot(run.steps[every], run.distance[every], label=label, **marks)
        left.plot(run.steps, run.expected_distance, color=colour(index), lw=1)
        right.plot(run.steps[every], run.variance[every], label=label, **marks)
        right.plot(run.steps, run.expected_variance, color=colour(index), lw=1)
        right.axhline(run.largest_variance, color=colour(index), lw=0.8, linestyle='--')
    left.set(title=r'(E v - E $\phi$) / start; line: $(1 - \beta)^T$', xlabel='steps T')
    left.set_ylim(-0.05, 1.05)
    right.set(title=r'Var v / Var $\phi$; dashed: $\beta/(2 - \beta)$', xlabel='steps T')
    right.set_yscale('log')
    left.legend(fontsize=8, frameon=False)
    label_panels(axes)
    return save(figure, path)
