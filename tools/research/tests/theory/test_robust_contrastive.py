"""The dual of iSogCLR's loss against its constrained primal."""

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, NonlinearConstraint, minimize

from theory.robust_contrastive import (
    divergence_from_uniform,
    optimal_temperature,
    optimal_weights,
    plot_anchor_weights,
    plot_two_negatives,
)


def primal(h, rho, tau0):
    """Eq. 6 by a solver of constrained problems."""
    m = len(h)
    found = minimize(
        lambda p: tau0 * divergence_from_uniform(p) - p @ h,
        np.full(m, 1 / m),
        method='trust-constr',
        bounds=[(1e-9, 1)] * m,
        constraints=[
            LinearConstraint(np.ones((1, m)), 1, 1),
            NonlinearConstraint(divergence_from_uniform, -np.inf, rho),
        ],
        options=dict(gtol=1e-9, xtol=1e-10, maxiter=400),
    )
    return found.x


@pytest.mark.parametrize('rho', [0.05, 0.4, 3.0])
def test_dual_is_the_constrained_primal(rho):
    h = np.random.default_rng(0).uniform(-1, 0, 4)
    weights, tau = optimal_weights(h, rho, 0.05)
    np.testing.assert_allclose(weights, primal(h, rho, 0.05), atol=2e-4)
    assert weights.sum() == pytest.approx(1)
    divergence = divergence_from_uniform(weights)
    # Either the bound or the smallest temperature is reached.
    assert divergence == pytest.approx(rho, abs=1e-6) or (divergence < rho and tau == 0.05)


def test_two_negatives_of_the_paper():
    """Figure 2: p* is (0.8, 0.2) at rho 0.2, and even for equal ones."""
    weights, tau = optimal_weights(np.array([0.0, -1.0]), 0.2, 0.05)
    np.testing.assert_allclose(weights, [0.8, 0.2], atol=6e-3)
    assert tau == pytest.approx(0.705, abs=2e-3)
    weights, tau = optimal_weights(np.array([-0.5, -0.5]), 0.2, 0.05)
    assert weights.tolist() == [0.5, 0.5]
    assert tau == 0.05


def test_an_anchor_with_many_similar_images_is_hot():
    alone = np.concatenate([np.full(2, 0.0), np.full(98, -1.0)])
    many = np.concatenate([np.full(40, 0.0), np.full(60, -1.0)])
    cold, hot = (optimal_temperature(h, 0.3, 1e-3) for h in (alone, many))
    assert hot > 1.5 * cold


def test_divergence_by_hand():
    p = np.array([[0.5, 0.5], [1.0, 0.0], [0.25, 0.75]])
    by_hand = [0, np.log(2), 0.25 * np.log(0.5) + 0.75 * np.log(1.5)]
    np.testing.assert_allclose(divergence_from_uniform(p), by_hand, atol=1e-12)


def test_pictures(tmp_path):
    cases = ((0.0, -1.0), (-0.5, -0.5))
    path = plot_two_negatives(cases, (0.2,), 0.05, tmp_path / 'a.png')
    assert path.stat().st_size > 5_000
    p = np.array([0.7, 0.2, 0.1])
    rows = [('cat', p, 0.2, p[::-1], 0.1), ('dog', p, 0.3, p, 0.1)]
    path = plot_anchor_weights(rows, tmp_path / 'b.png')
    assert path.stat().st_size > 5_000
