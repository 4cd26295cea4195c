"""The weights of negatives that iSogCLR's loss chooses, and their picture."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax

from mmrank.visualization.figures import label_panels, new_panels, save
from mmrank.visualization.palette import LOSS_STYLES, colour

#: The temperature is sought up to this multiple of the spread of h.
_WIDEST = 1e4


def optimal_temperature(h: np.ndarray, rho: float, tau0: float) -> float:
    """Minimise ``tau log mean_j exp(h_j / tau) + (tau - tau0) rho``: iSogCLR (ICML 2023), eq. 7."""
    h = np.asarray(h, dtype=np.float64)
    spread = float(np.ptp(h))
    if spread == 0:
        return tau0

    def dual(log_tau: float) -> float:
        tau = np.exp(log_tau)
        value = logsumexp((h - h.max()) / tau) - np.log(len(h))
        return tau * value + tau * rho

    low, high = np.log(tau0), np.log(max(tau0, spread) * _WIDEST)
    found = minimize_scalar(dual, bounds=(low, high), method='bounded', options={'xatol': 1e-10})
    return tau0 if dual(low) <= found.fun else float(np.exp(found.x))


def optimal_weights(h: np.ndarray, rho: float, tau0: float) -> tuple[np.ndarray, float]:
    """Weights of the negatives, and tau: iSogCLR (ICML 2023), eq. 6 and appendix A."""
    tau = optimal_temperature(h, rho, tau0)
    return softmax(np.asarray(h, dtype=np.float64) / tau), tau


def divergence_from_uniform(p: np.ndarray) -> np.ndarray:
    """``KL(p, 1/m)`` of (..., m) weights, which need not sum to 1."""
    p = np.asarray(p, dtype=np.float64)
    logs = np.log(np.where(p > 0, p, 1.0) * p.shape[-1])
    return (p * logs).sum(-1)


def plot_two_negatives(
    cases: Sequence[Sequence[float]], rhos: Sequence[float], tau0: float, path: str | os.PathLike
) -> Path:
    """Contours of the loss over two weights, a panel a case: iSogCLR (ICML 2023), figure 2."""
    figure, axes = new_panels(1, len(cases), 3.8, 3.6)
    grid = np.linspace(1e-6, 1, 201)
    p = np.stack(np.meshgrid(grid, grid), -1)
    # Off the line p1 + p2 = 1 it is a formula, not a divergence.
    far = divergence_from_uniform(p)
    for axis, h in zip(axes[0], cases):
        value = p @ np.asarray(h) - tau0 * far
        axis.contour(grid, grid, value, 14, cmap='Greys', linewidths=0.7, alpha=0.9)
        axis.plot([0, 1], [1, 0], color=colour(0), linewidth=1.6)
        for index, rho in enumerate(rhos):
            shade = colour(index + 1)
            axis.contour(grid, grid, far, [rho], colors=shade, linestyles='--', linewidths=1.1)
            weights, tau = optimal_weights(np.asarray(h), rho, tau0)
            label = rf'$\rho$ = {rho:g}: $p_1$ = {weights[0]:.2f}, $\tau$ = {tau:.2g}'
            axis.plot(*weights, 'o', color=shade, label=label)
        axis.set(title=f'h = ({h[0]:g}, {h[1]:g})', xlabel='$p_1$', ylabel='$p_2$', aspect='equal')
        axis.legend(fontsize=7)
    label_panels(axes)
    return save(figure, path)


def plot_anchor_weights(
    weights: Sequence[tuple[str, np.ndarray, float, np.ndarray, float]], path: str | os.PathLike
) -> Path:
    """Weights of the negatives of some anchors, at two temperatures: iSogCLR, figure 3."""
    figure, axes = new_panels(1, len(weights), 4.2, 3.0)
    for axis, (name, own, tau, common, other) in zip(axes[0], weights):
        place = np.arange(1, len(own) + 1)
        for values, key, label in (
            (own, 'isogclr', rf'its own $\tau$ = {tau:.3g}'),
            (common, 'clip', rf'$\tau$ = {other:.3g} for all'),
        ):
            style = LOSS_STYLES[key]
            axis.plot(place, np.sort(values)[::-1], color=style.colour, label=label)
        axis.set(title=name, xlabel='negatives, the most similar first', ylabel='weight $p^*$')
        axis.set(xscale='log', yscale='log', ylim=(max(1e-8, own.min() / 10), 1))
        axis.legend(fontsize=8, frameon=False)
    label_panels(axes)
    return save(figure, path)
