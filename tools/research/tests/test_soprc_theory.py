"""SOPRC's propositions in simulation, and the figures that they are compared with."""

import math

import numpy as np
import pytest
import torch

from mmrank.state import ScoreVector
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

BY_NAME = [pytest.param(d, id=d.name) for d in DISTRIBUTIONS]
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
    """E v - E phi shrinks as (1 - beta)^T, Var v <= Var phi beta/(2 - beta).

    The means over 20 points of 300 vectors have a standard error below 0.01
    of the start; variances, pooled over the late steps, one below 5 %.
    """
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
        expected = state.update(pos, torch.ones_like(pos, dtype=torch.bool))
    torch.testing.assert_close(got.float(), expected)
