"""Theorem 1, lemma 1 and 3 and the tracked mean of stable AP (2025), by brute force and by hand."""

import math

import pytest
import torch

import stable_ap_metrics
from mmrank.functional import stable_ap_loss
from theory.stable_ap import (
    DifferenceSetting,
    bound_row,
    difference_rows,
    half_q,
    mean_score_tracking,
    random_scores,
    theorem1_sides,
    weight_sum_row,
)


def brute_force_sides(pos, neg, tau, eps):
    """Theorem 1 in plain Python floats."""

    def huber(x):
        return 1 - 2 * x / tau if x < 0 else max(1 - x / tau, 0) ** 2

    n = len(pos)
    rho = len(neg) / n
    largest = 1 + 4 / tau
    risk = surrogate = argument = jensen = 0.0
    for s in pos:
        mean = sum(huber(s - t) for t in neg) / len(neg)
        rank = sum(s <= k for k in pos) / n
        above = sum(s <= t for t in neg)
        risk += above / (above + rank * n) / n
        surrogate += rho * mean / (rank + rho * mean) / n
        jensen += rho * mean / rank / n
        if rank <= 0.5:
            weight = 0.5 / math.sqrt(rank - rank**2)
        else:
            weight = (1 + rho * largest) / (rank + rho * largest)
        argument += rho * weight * mean / n
    q = math.pi / 2 + 2 * (1 + rho * largest) / (1 + 2 * rho * largest)
    bound = q / 2 * math.sqrt(eps**2 + argument / (1 + argument))
    return risk, surrogate, bound, jensen / (1 + jensen)


def test_sides_equal_brute_force():
    g = torch.Generator().manual_seed(0)
    pos, neg = random_scores(20, 6, g), random_scores(20, 15, g)
    sides = theorem1_sides(pos, neg, tau=0.4, eps=0.05)
    for i in range(20):
        expected = brute_force_sides(pos[i].tolist(), neg[i].tolist(), 0.4, 0.05)
        got = [side[i].item() for side in sides]
        assert got == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize('rho', [0.5, 1.0, 10.0])
def test_theorem_1_on_random_and_searched_lists(rho):
    rows = [bound_row(rho, n, trials=40, seed=0, climbing_steps=40) for n in (2, 8)]
    for row in rows:
        assert row.rho == rho
        assert row.random_risk <= row.worst_risk <= 1 + 1e-12
        assert row.random_bound <= row.worst_bound <= 1 + 1e-12
        # The first inequality is attained, the second within 30 %.
        assert row.worst_risk > 0.99
        assert row.worst_bound > 0.7


def test_weight_sums_and_the_weights_that_have_no_bound():
    rows = [weight_sum_row(x, n) for x in (0.01, 1.0, 500.0) for n in (2, 10, 1000, 100_000)]
    for row in rows:
        assert 1 - 1e-12 <= row.mean_weight <= row.upper
        assert row.upper == pytest.approx(half_q(row.rho_bound))
    # Tight where rho B is large; without theorem 1 the mean grows as log n+.
    last = rows[-1]
    assert last.mean_weight > 0.99 * last.upper
    assert last.mean_inverse_rank > math.log(100_000)


def test_lists_for_lemma_1_equal_the_loss_of_one_list():
    g = torch.Generator().manual_seed(0)
    setting = DifferenceSetting(rho=3.0)
    pos, neg = random_scores(5, 4, g), random_scores(5, 12, g)
    mu = pos.mean(1)
    got = setting.loss(pos, neg, mu)
    for i in range(5):
        scores = torch.cat([pos[i], neg[i]])
        is_positive = torch.arange(16) < 4
        expected = stable_ap_loss(scores, is_positive, mu[i], tau=0.5, bound=9.0, rho=3.0)
        torch.testing.assert_close(got[i], expected)


@pytest.mark.parametrize('rho', [0.5, pytest.param(4.0, marks=pytest.mark.slow)])
def test_lemma_1(rho):
    """Within the bound, and within half of it: h is 1/(2 eps)-Lipschitz."""
    setting = DifferenceSetting(rho=rho, tau=1.0, a=1.0, t=1.0)
    rows = [row for n in (8, 64, 256) for row in difference_rows(n, 10, 0, setting)]
    counts = [n for k in (8, 64, 256) for n in (k, rho * k)]
    assert [row.count for row in rows] == counts
    for row in rows:
        assert row.random <= row.worst <= row.limit
        share = 1 / row.count
        if row.replaced == 'positive':
            share = 2 / (row.count + 1)
        assert row.limit == pytest.approx(rho * 5 * share / (2 * 0.1))
        # No weaker than the paper's, for which weights are not divided.
        printed = DifferenceSetting(rho=rho, tau=1.0, a=1.0, t=1.0, weights='printed').limit(
            row.count, row.replaced
        )
        assert printed == pytest.approx(rho * 5 * 2 / (0.1 * row.count))
        assert row.limit <= printed / 2
    # Four times the samples; it is 4 where the loss is far from its ends.
    assert rows[2].worst / rows[4].worst > 2
    # The search comes near: the lists are not harmless ones.
    assert max(row.worst / row.limit for row in rows) > 0.15


def test_exact_mode_tracks_the_drift_and_plain_ema_lags():
    """Errors settle at 0 and -lag, both with the noise of an EMA."""
    run = mean_score_tracking(900, 60, 0)
    assert run.lag == pytest.approx(0.099)
    end = slice(560, 600)
    exact, plain = run.error['exact'][end], run.error['plain'][end]
    # The mean of 60 independent runs has an eighth of the noise.
    assert exact.mean().abs() < run.noise
    assert (plain.mean() + run.lag).abs() < run.noise
    for error in (exact, plain):
        assert 0.75 < error.std(1).mean() / run.noise < 1.25
    # Frozen weights: 300 steps later plain EMA has caught up.
    left = run.error['plain'][-1].mean() / -run.lag
    assert left.item() == pytest.approx(0.99**300, abs=0.03)


def test_the_rankings_of_figure_1_have_its_figures():
    printed = {
        'f1': [0.685, 0.571, 1, 0.4, 0.3],
        'f2': [0.622, 0.607, 1, 0.4, 0.4],
        'f3': [0.607, 0.643, 1, 0.4, 0.4],
    }
    for name, ranks in stable_ap_metrics.RANKINGS.items():
        found = [round(x, 3) for x in stable_ap_metrics.metrics_of(ranks).values()]
        assert found == printed[name]
