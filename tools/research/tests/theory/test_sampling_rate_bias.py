import numpy as np
import pytest
import torch

from mmrank.functional import average_precision
from mmrank.state import ScoreVector
from theory.soprc import (
    AVERAGE_PRECISION,
    BIBETA,
    DISTRIBUTIONS,
    ESTIMATORS,
    SOPRC,
    SOPRC_SURROGATES,
    SOPRC_WITHOUT_V,
    BiasSetting,
    bias_rows,
    moving_score_vector,
    population_auprc,
)
from theory.stable_ap import ap_risk

PRIOR = 0.1
SIZE, TRIALS = 600, 60
BATCHES = [(0.02, SIZE), (0.1, SIZE), (0.4, SIZE)]


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


def test_with_v_the_estimate_has_less_variance(case):
    _, rows = case
    for rate in (0.02, 0.1):
        assert rows[SOPRC, rate].std < rows[SOPRC_WITHOUT_V, rate].std


def test_rows_say_what_they_hold(case):
    distribution, rows = case
    assert len(rows) == len(BATCHES) * len(ESTIMATORS)
    row = rows[SOPRC, 0.02]
    assert row.bias == row.mean - row.truth
    assert row.standard_error == row.std / TRIALS**0.5
    assert row.truth == 1 - population_auprc(distribution, PRIOR)


def test_proposition_2_scale_h_lies_where_eq_35_says():
    """1 - AUPRC at pi0 is (1 - (pi0 - pi) H) times that at pi."""
    u = (np.arange(20_000) + 0.5) / 20_000
    for distribution in DISTRIBUTIONS:
        false = distribution.negative.sf(distribution.positive.isf(u))
        risk = 1 - population_auprc(distribution, PRIOR)
        for rate in (0.01, 0.3):
            h = u / (1 - PRIOR) / ((1 - rate) * false + rate * u)
            other = 1 - population_auprc(distribution, rate)
            scale = (1 - other / risk) / (rate - PRIOR)
            assert 0 < h.min() - 1e-6 < scale < h.max() + 1e-6


def test_moving_score_vector_is_the_state_of_training():
    setting = BiasSetting(length=13, momentum=0.3, past_batches=5)
    got = moving_score_vector(BIBETA, 6, 4, np.random.default_rng(1), setting)
    state = ScoreVector(4, 13, 0.3, score_range=BIBETA.score_range)
    rng = np.random.default_rng(1)
    for _ in range(5):
        pos = BIBETA.sample_positives(4, 6, rng)
        expected = state.update(pos, torch.ones_like(pos, dtype=torch.bool))
    torch.testing.assert_close(got.float(), expected)


def test_rows_do_not_depend_on_their_company():
    setting = BiasSetting(length=20, past_batches=2)
    together = list(bias_rows(BIBETA, [(0.1, 50), (0.3, 50)], 5, 3, setting))
    alone = list(bias_rows(BIBETA, [(0.3, 50)], 5, 3, setting))
    assert together[len(ESTIMATORS) :] == alone
    assert alone != list(bias_rows(BIBETA, [(0.3, 50)], 5, 4, setting))


def test_ap_risk_equals_average_precision_with_ties():
    g = torch.Generator().manual_seed(0)
    pos = torch.randint(0, 9, (6, 7), generator=g).double() / 8
    neg = torch.randint(0, 9, (6, 20), generator=g).double() / 8
    labels = torch.arange(27) < 7
    expected = [1 - average_precision(torch.cat([p, n]), labels) for p, n in zip(pos, neg)]
    torch.testing.assert_close(ap_risk(pos, neg), torch.stack(expected))
