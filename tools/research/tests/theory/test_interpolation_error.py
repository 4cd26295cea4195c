from itertools import pairwise

import numpy as np
import pytest

from theory.soprc import BIBETA, BINORMAL, DISTRIBUTIONS, OFFSET_UNIFORM
from theory.soprc_scores import (
    expected_order_statistics,
    interpolation_errors,
    mean_interpolated_scores,
    score_vector_noise,
)

CURVED = [pytest.param(d, id=d.name) for d in (BINORMAL, BIBETA)]
NUMS_SCORES = (20, 40, 80, 160)


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


def test_proposition_3_without_curvature():
    row = interpolation_errors(OFFSET_UNIFORM, 40, 2, 0)
    assert (row.error, row.bound, row.local_ratio) == (0, 0, 0)


@pytest.mark.parametrize('distribution', DISTRIBUTIONS, ids=lambda d: d.name)
def test_the_interpolation_is_asymptotically_unbiased(distribution):
    """What proposition 2 assumes: E phi tends to p, and fast."""
    rows = [interpolation_errors(distribution, n, 50, 0) for n in NUMS_SCORES]
    for few, many in pairwise(rows):
        assert 1.3 < few.expected_error / many.expected_error < 2.4
    for row in rows:
        assert row.expected_error < 0.3 * row.std


def test_expected_order_statistics_in_closed_form():
    """Of the uniform distribution they are i/(n + 1)."""
    i = np.arange(1, 41)
    np.testing.assert_allclose(
        expected_order_statistics(OFFSET_UNIFORM, 40), 0.5 + i / 41, atol=1e-6
    )
    # Blom (1958): E u_n of five normal scores is 1.16296.
    got = expected_order_statistics(BINORMAL, 5) - 1
    assert got[-1] == pytest.approx(1.16296, abs=1e-3)
    np.testing.assert_allclose(got, -got[::-1], atol=1e-9)


@pytest.mark.parametrize('distribution', DISTRIBUTIONS, ids=lambda d: d.name)
def test_expected_phi_is_the_mean_of_random_ones(distribution):
    mean, std = mean_interpolated_scores(distribution, 16, 64, 2000, 0)
    u = expected_order_statistics(distribution, 16)
    # Points 4 to 59 lie in intervals 2 to 15, which need no extrapolation. Point 4k begins interval
    # k + 1, whose two lines begin at u_k, u_k+1.
    for k in range(1, 15):
        expected = (u[k - 1] + u[k]) / 2
        assert abs(mean[4 * k] - expected) < 5 * std[4 * k] / 2000**0.5


@pytest.mark.parametrize('count', [10, 25, 0])
def test_bad_number_of_scores_is_named(count):
    with pytest.raises(ValueError, match='multiple of 10 and at least 20'):
        interpolation_errors(BIBETA, count, 2, 0)


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
