"""The propositions of SOPRC and of stable AP in simulation and by brute force, and their tools."""

import math
import sys

import numpy as np
import pytest
import torch

import soprc_simulation
import stable_ap_bounds
from mmrank.functional import stable_ap_loss
from mmrank.state import ScoreVector
from theory import stable_ap_metrics
from theory.soprc import (
    AVERAGE_PRECISION,
    BIBETA,
    BINORMAL,
    DISTRIBUTIONS,
    OFFSET_UNIFORM,
    SOPRC,
    SOPRC_SURROGATES,
    SOPRC_WITHOUT_V,
    BiasSetting,
    bias_rows,
    interpolation_errors,
    moving_score_vector,
    population_auprc,
    score_vector_noise,
)
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

CURVED = [pytest.param(d, id=d.name) for d in (BINORMAL, BIBETA)]
NUMS_SCORES = (20, 40, 80, 160)
PRIOR = 0.1
SIZE = 600
TRIALS = 60
BATCHES = [(0.02, SIZE), (0.1, SIZE), (0.4, SIZE)]


@pytest.mark.parametrize('prior', [0.001, 0.1, 0.5, 0.9])
def test_auprc_of_the_offset_uniform_in_closed_form(prior):
    """Precision is 1 up to recall 1/2 and pi u/(u - (1 - pi)/2) beyond."""
    closed = 0.5 + prior / 2 * (1 + (1 - prior) * math.log((1 + prior) / prior))
    assert population_auprc(OFFSET_UNIFORM, prior) == pytest.approx(closed, abs=1e-8)


@pytest.mark.parametrize('distribution', CURVED)
def test_proposition_3(distribution):
    """In every interval the error is within |p''|/(8 n^2) of it."""
    rows = [interpolation_errors(distribution, n, 2, 0) for n in NUMS_SCORES]
    for row in rows:
        assert 0.1 * row.bound < row.error <= row.bound
        assert 0.5 < row.local_ratio <= 1
    # Four times fewer errors with twice the scores, in the limit.
    assert 3.5 < rows[-2].error / rows[-1].error < 4.1
    assert rows[-1].error / rows[-1].bound > 0.85


@pytest.mark.parametrize('momentum', [0.5, 0.1])
def test_proposition_1(momentum):
    """E v - E phi shrinks as (1 - beta)^T, Var v <= Var phi beta/(2 - beta)."""
    run = score_vector_noise(BIBETA, momentum, 60, 300, 0)
    error = run.distance - run.expected_distance
    assert np.abs(error).max() < 0.02
    late = slice(30, None)
    ratio = run.variance[late].mean() / run.expected_variance[late].mean()
    assert 0.8 < ratio < 1.2
    assert (run.expected_variance <= run.largest_variance).all()
    # The first step has beta^2 of the variance of phi.
    assert run.variance[0] == pytest.approx(momentum**2, rel=0.25)


@pytest.fixture(scope='module', params=DISTRIBUTIONS, ids=lambda d: d.name)
def case(request):
    """Rows by estimator and sampling rate of one distribution."""
    setting = BiasSetting(prior=PRIOR, length=200, past_batches=20)
    rows = bias_rows(request.param, BATCHES, TRIALS, 0, setting)
    return request.param, {(r.estimator, r.sampling_rate): r for r in rows}


def test_proposition_2_soprc_does_not_move_with_the_sampling_rate(case):
    """Its bias is noise plus what vanishes with the batch, 0.02 here."""
    _, rows = case
    for estimator in (SOPRC, SOPRC_SURROGATES, SOPRC_WITHOUT_V):
        for rate, _ in BATCHES:
            row = rows[estimator, rate]
            margin = 0.04 if estimator == SOPRC_WITHOUT_V else 0.025
            assert abs(row.bias) < margin + 3 * row.standard_error


def test_average_precision_moves_with_the_sampling_rate(case):
    """It estimates the AUPRC at prior pi0, not at pi.

    So its risk falls as positives are oversampled. The paper's proposition 2 and remark 2 have the
    sign of pi0 - pi the other way round.
    """
    distribution, rows = case
    risk = 1 - population_auprc(distribution, PRIOR)
    for rate, _ in BATCHES:
        row = rows[AVERAGE_PRECISION, rate]
        shift = 1 - population_auprc(distribution, rate) - risk
        # Few positives make it pessimistic by about 1/n+.
        margin = 1 / (rate * SIZE) + 3 * row.standard_error
        assert abs(row.bias - shift) < margin
    assert rows[AVERAGE_PRECISION, 0.02].bias > 0.05
    assert rows[AVERAGE_PRECISION, 0.4].bias < -0.1


def test_moving_score_vector_is_the_state_of_training():
    setting = BiasSetting(length=13, momentum=0.3, past_batches=5)
    got = moving_score_vector(BIBETA, 6, 4, np.random.default_rng(1), setting)
    state = ScoreVector(4, 13, 0.3, score_range=BIBETA.score_range)
    rng = np.random.default_rng(1)
    for _ in range(5):
        pos = BIBETA.sample_positives(4, 6, rng)
        expected = state.update((pos, torch.ones_like(pos, dtype=torch.bool)))
    torch.testing.assert_close(got.float(), expected)


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
    pos = random_scores(20, 6, g)
    neg = random_scores(20, 15, g)
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
    pos = random_scores(5, 4, g)
    neg = random_scores(5, 12, g)
    mu = pos.mean(1)
    got = setting.loss(pos, neg, mu)
    for i in range(5):
        scores = torch.cat([pos[i], neg[i]])
        is_positive = torch.arange(16) < 4
        expected = stable_ap_loss(scores, is_positive, mu[i], tau=0.5, bound=9.0, rho=3.0)
        torch.testing.assert_close(got[i], expected)


def test_lemma_1():
    """Within the bound, and within half of it: h is 1/(2 eps)-Lipschitz."""
    rho = 0.5
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
    exact = run.error['exact'][end]
    plain = run.error['plain'][end]
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


def in_small(tool, folder, monkeypatch, **constants):
    """Run a tool on sizes for a test."""
    for name, value in constants.items():
        monkeypatch.setattr(tool, name, value)
    monkeypatch.setattr(sys, 'argv', ['tool', '--out-dir', str(folder), '--trials', '2'])
    return tool.main()


SOPRC_SIZES = dict(RATES=(0.02, 0.5), SIZE=60, SIZES=(20, 60), NUMS_SCORES=(20, 30), MOMENTA=(0.5,))
BOUND_SIZES = dict(
    RHOS=(1.0, 2.0), NUMS_POS=(2, 4), NUMS_WEIGHTS=(2, 4), NUMS_SAMPLES=(4, 8), STEPS=20
)


@pytest.mark.slow
def test_figures_and_tables_of_soprc(tmp_path, monkeypatch):
    assert not in_small(soprc_simulation, tmp_path, monkeypatch, **SOPRC_SIZES)
    for file in ('sampling_rate_bias', 'interpolation_error', 'score_vector'):
        assert 'nan' not in (tmp_path / f'{file}.csv').read_text()
        assert (tmp_path / f'{file}.png').stat().st_size > 5_000


def test_bounds_tool_fails_where_a_bound_does_not_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(stable_ap_bounds, 'bounded_difference', lambda _: (tmp_path, 1.01))
    assert in_small(stable_ap_bounds, tmp_path, monkeypatch, **BOUND_SIZES) == 1
    for file in ('theorem1', 'theorem1_weights', 'mean_score_tracking'):
        assert 'nan' not in (tmp_path / f'{file}.csv').read_text()
    for file in ('theorem1', 'mean_score_tracking'):
        assert (tmp_path / f'{file}.png').stat().st_size > 5_000
