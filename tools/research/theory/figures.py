"""Figures of the theory of the papers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from mmrank.pictures.figures import legend_above, new_panels, save
from mmrank.pictures.palette import colour
from theory import soprc
from theory.stable_ap import BoundRow, DifferenceRow, Theorem1Sides, TrackingError, WeightSumRow

_MARKERS = 'os^'
_STYLES = {
    soprc.AVERAGE_PRECISION: dict(color=colour(4), marker='o', linestyle='-'),
    soprc.SOPRC: dict(color=colour(2), marker='s', linestyle='-'),
    soprc.SOPRC_WITHOUT_V: dict(color=colour(1), marker='^', linestyle='--'),
    soprc.SOPRC_SURROGATES: dict(color=colour(3), marker='D', linestyle=':'),
}


def _save(figure: Figure, axes: np.ndarray, path: Path) -> Path:
    """Put a, b, c ... before the titles, as papers refer to panels, and write the figure."""
    for index, axis in enumerate(axes.ravel()):
        title = f'({chr(97 + index)}) {axis.get_title()}'
        axis.set_title('')
        axis.set_title(title, fontsize=9, loc='left')
    return save(figure, path, has_formulas=True)


def plot_two_negatives(
    optima: Mapping[tuple, tuple[np.ndarray, float]], tau0: float, path: Path
) -> Path:
    """Contours of the loss over two weights, a panel a case: iSogCLR (ICML 2023), figure 2.

    ``optima`` has the weights and the temperature of each case and rho.
    """
    cases = [*dict.fromkeys(h for h, _ in optima)]
    figure, axes = new_panels(1, len(cases), 3.8, 3.6)
    grid = np.linspace(1e-6, 1, 201)
    p = np.stack(np.meshgrid(grid, grid), -1)
    # KL(p, 1/2); off the line p1 + p2 = 1 it is a formula, not a divergence.
    far = (p * np.log(2 * p)).sum(-1)
    for axis, h in zip(axes[0], cases):
        axis.contour(grid, grid, p @ h - tau0 * far, 14, cmap='Greys', linewidths=0.7, alpha=0.9)
        axis.plot([0, 1], [1, 0], color=colour(0), linewidth=1.6)
        own = [(rho, *found) for (case, rho), found in optima.items() if case == h]
        for index, (rho, weights, tau) in enumerate(own, 1):
            shade = colour(index)
            axis.contour(grid, grid, far, [rho], colors=shade, linestyles='--', linewidths=1.1)
            label = rf'$\rho$ = {rho:g}: $p_1$ = {weights[0]:.2f}, $\tau$ = {tau:.2g}'
            axis.plot(*weights, 'o', color=shade, label=label)
        axis.set(title=f'h = ({h[0]:g}, {h[1]:g})', xlabel='$p_1$', ylabel='$p_2$', aspect='equal')
        axis.legend(fontsize=7)
    return _save(figure, axes, path)


def plot_theorem1(
    sides: Theorem1Sides, rows: Sequence[BoundRow], weights: Sequence[WeightSumRow], path: Path
) -> Path:
    """Theorem 1 on random lists, its largest ratios by rho and n+, and the weight sums."""
    figure, axes = new_panels(1, 3, width=4.0, height=3.6)
    scatter, ratios, sums = axes[0]
    order = sides.risk.argsort()
    bounds = {
        r'$\frac{q}{2}\,h(\cdot)$, theorem 1': sides.bound,
        'Jensen alone, eq. 3': sides.jensen,
        'surrogate risk, eq. 2': sides.surrogate_risk,
    }
    for index, (label, values) in enumerate(bounds.items()):
        style = dict(color=colour(index), marker=_MARKERS[index], markersize=3, alpha=0.7)
        style |= dict(linestyle='', markeredgewidth=0)
        scatter.plot(sides.risk[order], values[order], label=label, **style)
    scatter.plot([0, 1], [0, 1], color='black', lw=1, label='1 - AP itself')
    title = '400 random lists, 20 positives + 20 negatives'
    scatter.set(title=title, xlabel='AP risk 1 - AP', ylabel='upper bounds of it')
    scatter.set(xlim=(0, 1), ylim=(0, 1.35))
    scatter.legend(fontsize=7, frameon=False, loc='lower right')

    for index, num_pos in enumerate(sorted({r.num_pos for r in rows})):
        own = [r for r in rows if r.num_pos == num_pos]
        rho = [r.rho for r in own]
        style = dict(color=colour(index), markersize=4)
        worst = [r.worst_bound for r in own]
        ratios.plot(rho, worst, 'o-', label=f'searched, n+ = {num_pos}', **style)
        random = [r.random_bound for r in own]
        ratios.plot(rho, random, 'x:', label=f'random, n+ = {num_pos}', **style)
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
    return _save(figure, axes, path)


def plot_bounded_difference(
    runs: Mapping[str, Sequence[DifferenceRow]], eps: float, path: Path
) -> Path:
    """Largest change by number of samples against lemma 1, a row of panels for each setting."""
    figure, axes = new_panels(len(runs), 2, width=4.4, height=2.9)
    lines = (
        ('worst', 'stable AP, worst list found'),
        ('random', 'stable AP, random lists'),
        ('ap_worst', '1 - AP, worst list found'),
    )
    span = (1 + eps**2) ** 0.5 - eps
    for line, (name, rows) in zip(axes, runs.items()):
        for axis, replaced in zip(line, ('positive', 'negative')):
            own = [r for r in rows if r.replaced == replaced]
            n = [r.count for r in own]
            axis.plot(n, [r.limit for r in own], color='black', label='lemma 1')
            axis.axhline(span, color='0.5', linestyle='--', lw=1, label='range of the loss')
            for index, (key, label) in enumerate(lines):
                style = dict(color=colour(index), marker=_MARKERS[index], markersize=4)
                axis.plot(n, [getattr(r, key) for r in own], label=label, **style)
            axis.set(title=f'one {replaced} replaced, {name}', xlabel=f'{replaced}s n')
            axis.set(xscale='log', yscale='log')
        line[0].set_ylabel('largest change')
    legend_above(figure, axes[0, 0], 3)
    return _save(figure, axes, path)


def plot_mean_score_tracking(tracking: TrackingError, path: Path) -> Path:
    """Error of the tracked mean, mean and spread over the trials."""
    figure, axes = new_panels(1, 1, width=5.6, height=3.2)
    axis = axes[0, 0]
    steps = np.arange(1, len(tracking.drift) + 1)
    names = {'plain': 'plain EMA', 'exact': 'exact, eq. 6'}
    for index, (mode, name) in enumerate(names.items()):
        error = tracking.error[mode].numpy()
        mean = error.mean(1)
        std = error.std(1)
        axis.plot(steps, mean, color=colour(index), label=name)
        axis.fill_between(steps, mean - std, mean + std, color=colour(index), alpha=0.2, lw=0)
    label = r'$-(1-\lambda)/\lambda \cdot$ drift'
    axis.axhline(-tracking.lag, color='black', lw=1, linestyle='--', label=label)
    axis.axhline(0, color='0.6', lw=0.8)
    stop = int((tracking.drift != 0).sum())
    axis.axvline(stop, color='0.6', lw=0.8, linestyle=':')
    above = axis.get_xaxis_transform()
    style = dict(transform=above, fontsize=8, color='0.35')
    axis.text(stop - 8, 0.9, 'weights drift', ha='right', **style)
    axis.text(stop + 8, 0.9, 'weights frozen', ha='left', **style)
    axis.set(xlabel='step', ylabel=r'estimate of $\mu$ minus true mean', xlim=(1, steps[-1]))
    axis.set_ylim(-1.15 * tracking.lag, 0.25 * tracking.lag)
    axis.legend(fontsize=8, frameon=False, loc='center', bbox_to_anchor=(0.55, 0.5))
    return save(figure, path, has_formulas=True)


def plot_densities(path: Path) -> Path:
    """Densities of the scores of positives and negatives: SOPRC (NeurIPS 2022), figure 3."""
    figure, axes = new_panels(1, len(soprc.DISTRIBUTIONS))
    for axis, distribution in zip(axes[0], soprc.DISTRIBUTIONS):
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
    return _save(figure, axes, path)


def plot_sampling_rate_bias(
    by_rate: Sequence[soprc.BiasRow], by_size: Sequence[soprc.BiasRow], prior: float, path: Path
) -> Path:
    """Bias and spread by sampling rate (one batch size), and bias by batch size (one rate)."""
    figure, axes = new_panels(3, len(soprc.DISTRIBUTIONS))
    size = by_rate[0].batch_size
    rate = by_size[0].sampling_rate
    for (top, middle, low), distribution in zip(axes.T, soprc.DISTRIBUTIONS):
        known = sorted({r.sampling_rate for r in by_rate})
        rates = np.geomspace(known[0], known[-1], 16)
        truth = soprc.population_auprc(distribution, prior)
        bias = [truth - soprc.population_auprc(distribution, r) for r in rates]
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
    legend_above(figure, axes[0, 0], 5)
    return _save(figure, axes, path)


def _rows(rows, distribution: str, estimator: str) -> list[soprc.BiasRow]:
    return [r for r in rows if r.distribution == distribution and r.estimator == estimator]


def _draw_bias(axis, x, rows, label, style) -> None:
    errors = [2 * r.standard_error for r in rows]
    style = dict(style, capsize=2, markersize=4, linewidth=1.3)
    axis.errorbar(x, [r.bias for r in rows], yerr=errors, label=label, **style)


def _ticks(axis, values: Sequence[float]) -> None:
    axis.set_xticks(values, [f'{v:g}' for v in values], rotation=45)
    axis.set_xticks([], minor=True)


def plot_interpolation_error(
    rows: Sequence[soprc.InterpolationErrorRow], trials: int, seed: int, path: Path
) -> Path:
    """The scores that phi approximates (``trials`` batches), and its errors against their bound."""
    figure, axes = new_panels(2, len(soprc.DISTRIBUTIONS), height=3.0)
    length = 200
    x = (np.arange(length) + 0.5) / length
    for (top, low), distribution in zip(axes.T, soprc.DISTRIBUTIONS):
        for index, count in enumerate((4, 16)):
            rng = np.random.default_rng([seed, count])
            scores = distribution.sample_positives(trials, count, rng)
            phi = distribution.phi(scores, length).numpy()
            mean = phi.mean(0)
            std = phi.std(0, ddof=1)
            top.plot(x, mean, color=colour(index), label=rf'mean $\phi$, $n_+$ = {count}')
            top.fill_between(x, mean - std, mean + std, color=colour(index), alpha=0.18)
        line = dict(color='black', linewidth=1, linestyle='--')
        top.plot(x, distribution.positive.ppf(x), label='p, all positives', **line)
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
            style = dict(color=colour(index), marker=_MARKERS[index], markersize=4)
            low.plot(n, [getattr(r, key) for r in own], label=label, **style)
        low.set(xscale='log', yscale='log', xlabel=r'scores of a batch $n_+$')
        _ticks(low, n)
        low.set_title(f'largest error, quantiles {soprc.INNER[0]:g} to {soprc.INNER[1]:g}')
    axes[0, 0].set_ylabel('score')
    axes[1, 0].set_ylabel('error of the score')
    axes[0, 0].legend(fontsize=7, frameon=False)
    axes[1, 0].legend(fontsize=7, frameon=False, loc='lower left', labelspacing=0.3)
    return _save(figure, axes, path)


def plot_score_vector_noise(runs: Sequence[soprc.ScoreVectorNoise], path: Path) -> Path:
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
    return _save(figure, axes, path)
