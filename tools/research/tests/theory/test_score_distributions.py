import math

import numpy as np
import pytest
import torch
from scipy import integrate

from mmrank.functional import average_precision
from theory.soprc import (
    BIBETA,
    BINORMAL,
    DISTRIBUTIONS,
    OFFSET_UNIFORM,
    population_auprc,
    population_soprc_risk,
)

BY_NAME = [pytest.param(d, id=d.name) for d in DISTRIBUTIONS]


@pytest.mark.parametrize('prior', [0.001, 0.1, 0.5, 0.9])
def test_auprc_of_the_offset_uniform_in_closed_form(prior):
    """Precision is 1 up to recall 1/2 and pi u/(u - (1 - pi)/2) beyond."""
    closed = 0.5 + prior / 2 * (1 + (1 - prior) * math.log((1 + prior) / prior))
    assert population_auprc(OFFSET_UNIFORM, prior) == pytest.approx(closed, abs=1e-8)


@pytest.mark.parametrize('distribution', BY_NAME)
def test_auprc_is_the_average_precision_of_many_scores(distribution):
    """Scores at evenly spaced quantiles: no noise, an error of about 1/n."""
    x = (np.arange(20_000) + 0.5) / 20_000
    pos = torch.from_numpy(distribution.positive.ppf(x))
    neg = torch.from_numpy(distribution.negative.ppf(x))
    labels = torch.arange(40_000) < 20_000
    ap = average_precision(torch.cat([pos, neg]), labels).item()
    assert population_auprc(distribution, 0.5) == pytest.approx(ap, abs=2e-4)


@pytest.mark.parametrize('distribution', BY_NAME)
def test_auprc_rises_with_the_prior_to_one(distribution):
    values = [population_auprc(distribution, p) for p in (0.01, 0.1, 0.9)]
    assert values == sorted(values)
    assert population_auprc(distribution, 1 - 1e-6) > 1 - 1e-5


@pytest.mark.parametrize('distribution', BY_NAME)
@pytest.mark.slow
def test_soprc_risk_by_nested_quadrature(distribution):
    tau1, tau2, prior = 0.3, 0.05, 0.1

    def huber(x):
        return 1 - 2 * x / tau1 if x < 0 else max(1 - x / tau1, 0) ** 2

    def risk(u):
        s = distribution.positive.ppf(u)
        above, _ = integrate.quad(
            lambda q: huber(s - distribution.negative.ppf(q)),
            *(0, 1),
            points=[min(distribution.negative.cdf(s), 1 - 1e-9)],
            epsabs=1e-5,
        )
        higher, _ = integrate.quad(
            lambda q: math.tanh(max(distribution.positive.ppf(q) - s, 0) / (2 * tau2)),
            *(u, 1),
            epsabs=1e-5,
        )
        x = (1 - prior) / prior * above / higher
        return x / (1 + x)

    nodes = (np.arange(40) + 0.5) / 40
    expected = np.mean([risk(u) for u in nodes])
    got = population_soprc_risk(distribution, prior, tau1, tau2, nodes=40)
    assert got == pytest.approx(expected, abs=3e-3)


@pytest.mark.parametrize('distribution', BY_NAME)
def test_surrogates_only_raise_the_risk(distribution):
    risk = 1 - population_auprc(distribution, 0.1)
    assert population_soprc_risk(distribution, 0.1, 0.1, 0.001) > risk


@pytest.mark.parametrize('distribution', BY_NAME)
def test_curvature_is_the_second_difference_of_the_quantiles(distribution):
    x, h = np.linspace(0.1, 0.9, 9), 1e-4
    second = (
        distribution.quantile(x + h) - 2 * distribution.quantile(x) + distribution.quantile(x - h)
    ) / h**2
    np.testing.assert_allclose(distribution.quantile_curvature(x), second, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('distribution', BY_NAME)
def test_samples_follow_their_seed_and_distribution(distribution):
    draws = [distribution.sample(3, 2000, 500, np.random.default_rng(7)) for _ in range(2)]
    for first, second in zip(*draws):
        assert torch.equal(first, second)
        assert first.dtype == torch.float64
    pos, neg = draws[0]
    assert pos.shape == (3, 2000)
    assert neg.shape == (3, 500)
    # 6000 draws: the mean is off by less than five standard errors.
    error = 5 * distribution.positive.std() / 6000**0.5
    assert abs(pos.mean().item() - distribution.positive.mean()) < error
    low, high = distribution.score_range
    assert pos.min() >= low
    assert torch.cat([pos, neg], dim=1).max() <= high


def test_distributions_are_those_of_the_paper():
    assert (BINORMAL.positive.mean(), BINORMAL.negative.mean()) == (1, 0)
    assert BIBETA.positive.mean() == pytest.approx(5 / 7)
    assert BIBETA.negative.mean() == pytest.approx(2 / 7)
    assert OFFSET_UNIFORM.positive.support() == (0.5, 1.5)
    assert OFFSET_UNIFORM.negative.support() == (0, 1)


@pytest.mark.parametrize('prior', [0.0, 1.0, -1.0])
def test_bad_prior_is_named(prior):
    with pytest.raises(ValueError, match=r'prior must be in \(0, 1\)'):
        population_auprc(BIBETA, prior)
