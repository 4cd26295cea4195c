"""The simulations of SOPRC (NeurIPS 2022): bias of AUPRC estimates, and the scores phi and v.

Three pairs of score distributions, figure 3, after Boyd et al. (2013); their AUPRC is known by
integration. Batches are drawn from the distributions themselves, not from 100,000 points drawn
once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import integrate, stats
from torch import Tensor

from mmrank.functional import (
    OneSidedHuber,
    Surrogate,
    interpolate_scores,
    pairwise_surrogate_sum,
    split_lists,
)
from mmrank.losses.pairs_smooth import OneSidedSigmoid
from mmrank.losses.ranking.soprc import soprc_terms
from mmrank.state.score_vector import ScoreVector
from theory.stable_ap import ap_risk, scores_of

AVERAGE_PRECISION = 'average precision'
SOPRC = 'SOPRC'
SOPRC_WITHOUT_V = 'SOPRC without v'
SOPRC_SURROGATES = 'SOPRC with surrogates'
# Below any difference of two scores: l2 is then l01.
_SHARP = 1e-9
# Quantiles between which p'' is bounded for all distributions.
INNER = (0.1, 0.9)
_POINTS_PER_INTERVAL = 20


class ZeroOne(Surrogate):
    """``l01(x) = 1 if x <= 0 else 0``, which the surrogates approximate; it has no gradient."""

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        if slopes is not None:
            slopes.zero_()
        return (x <= 0).to(x.dtype) if values else None


@dataclass(frozen=True)
class ScoreDistribution:
    """How positives and negatives are scored."""

    name: str  # Short name for tables and files
    formula: str  # The two distributions, negatives first
    positive: Any  # Frozen scipy distribution of a positive's score
    negative: Any  # Distribution of a negative's score
    log_slope: Callable[[np.ndarray], np.ndarray]  # Derivative of the log density of ``positive``
    score_range: tuple[float, float]  # Range of all scores; infinite ends are fine

    def sample_positives(self, trials: int, num_pos: int, rng: np.random.Generator) -> Tensor:
        """(trials, num_pos) scores of positives, float64."""
        return _draw(self.positive, trials, num_pos, rng)

    def phi(self, scores: Tensor, length: int) -> Tensor:
        """(L, length) interpolated scores phi of (L, n) scores."""
        return interpolate_scores(scores, length, *self.score_range)


def _draw(distribution, trials: int, count: int, rng: np.random.Generator) -> Tensor:
    return torch.from_numpy(distribution.rvs(size=(trials, count), random_state=rng))


BINORMAL = ScoreDistribution(
    name='binormal',
    formula='N(0, 1) / N(1, 1)',
    positive=stats.norm(1, 1),
    negative=stats.norm(0, 1),
    log_slope=lambda s: 1 - s,
    score_range=(-np.inf, np.inf),
)
BIBETA = ScoreDistribution(
    name='bibeta',
    formula='B(2, 5) / B(5, 2)',
    positive=stats.beta(5, 2),
    negative=stats.beta(2, 5),
    log_slope=lambda s: 4 / s - 1 / (1 - s),
    score_range=(0.0, 1.0),
)
OFFSET_UNIFORM = ScoreDistribution(
    name='offset uniform',
    formula='U(0, 1) / U(0.5, 1.5)',
    positive=stats.uniform(0.5, 1),
    negative=stats.uniform(0, 1),
    log_slope=lambda s: 0 * s,
    score_range=(0.0, 1.5),
)
DISTRIBUTIONS = (BINORMAL, BIBETA, OFFSET_UNIFORM)


def population_auprc(distribution: ScoreDistribution, prior: float) -> float:
    """Area under the precision-recall curve, error below 1e-8: SOPRC (NeurIPS 2022), eq. 1."""

    def precision(recall):
        threshold = distribution.positive.isf(recall)
        false = (1 - prior) * distribution.negative.sf(threshold)
        return prior * recall / (prior * recall + false)

    # Split where the curve of the offset uniform has its kink.
    area, _ = integrate.quad(precision, 0, 1, points=[0.5], epsabs=1e-9, limit=500)
    return area


def population_soprc_risk(
    distribution: ScoreDistribution, prior: float, tau1: float, tau2: float
) -> float:
    """The limit of SOPRC's loss for endless batches and v: SOPRC (NeurIPS 2022), eq. 4."""
    pos = distribution.positive.ppf(midpoints(500))
    neg = distribution.negative.ppf(midpoints(25_000))
    other = distribution.positive.ppf(midpoints(5_000))
    pos, neg, other = (torch.from_numpy(x)[None] for x in (pos, neg, other))
    above = pairwise_surrogate_sum(pos, neg, OneSidedHuber(tau1)) / neg.numel()
    higher = pairwise_surrogate_sum(pos, other, OneSidedSigmoid(tau2)) / other.numel()
    x = (1 - prior) / prior * above / higher
    return (1 - 1 / (1 + x)).mean().item()


def midpoints(count: int) -> np.ndarray:
    return (np.arange(count) + 0.5) / count


class BiasSetting(NamedTuple):
    """Settings of the estimators."""

    prior: float = 0.1  # Share pi of the positives in the population
    length: int = 500  # Points V of the score vector v
    momentum: float = 0.1  # Weight beta of a new batch in v
    past_batches: int = 30  # Batches that v saw before the one that is estimated
    tau1: float = 0.1  # Margin of l1, for :data:`SOPRC_SURROGATES`
    tau2: float = 0.001  # Temperature of l2, likewise


class BiasRow(NamedTuple):
    """Estimates of one risk over batches with a share of positives."""

    distribution: str
    estimator: str
    batch_size: int
    sampling_rate: float
    truth: float
    mean: float
    bias: float  # Mean estimate minus the population value
    standard_error: float  # Of the mean and of the bias
    std: float  # Of one estimate


def moving_score_vector(
    distribution: ScoreDistribution,
    num_pos: int,
    trials: int,
    rng: np.random.Generator,
    setting: BiasSetting,
) -> Tensor:
    """(trials, length) score vectors v after ``past_batches`` batches: SOPRC, eq. 10."""
    vector = None
    for _ in range(setting.past_batches):
        phi = distribution.phi(distribution.sample_positives(trials, num_pos, rng), setting.length)
        vector = phi if vector is None else vector.lerp_(phi, setting.momentum)
    return vector


def estimate_risks(
    distribution: ScoreDistribution,
    num_pos: int,
    num_neg: int,
    trials: int,
    rng: np.random.Generator,
    setting: BiasSetting,
) -> dict[str, Tensor]:
    """(trials,) risks by name of the estimator, of batches with >= 1 positive and negative."""
    vector = moving_score_vector(distribution, num_pos, trials, rng, setting)
    pos = distribution.sample_positives(trials, num_pos, rng)
    neg = _draw(distribution.negative, trials, num_neg, rng)
    own = distribution.phi(pos, setting.length)
    # Eq. 10: v takes in the batch before the loss is computed.
    vector = vector.lerp(own, setting.momentum)
    lists = split_lists(*scores_of(pos, neg))

    def soprc(v, surrogate, tau2):
        losses, _ = soprc_terms(lists, v, setting.prior, surrogate, tau2)
        return losses

    return {
        AVERAGE_PRECISION: ap_risk(pos, neg),
        SOPRC: soprc(vector, ZeroOne(), _SHARP),
        SOPRC_WITHOUT_V: soprc(own, ZeroOne(), _SHARP),
        SOPRC_SURROGATES: soprc(vector, OneSidedHuber(setting.tau1), setting.tau2),
    }


def bias_rows(
    distribution: ScoreDistribution,
    batches: list[tuple[float, int]],
    trials: int,
    seed: int,
    setting: BiasSetting,
) -> Iterator[BiasRow]:
    """Compare the estimators over batch compositions: figures 1 and 4, appendix B.2."""
    auprc_risk = 1 - population_auprc(distribution, setting.prior)
    soprc_risk = population_soprc_risk(distribution, setting.prior, setting.tau1, setting.tau2)
    for rate, size in batches:
        num_pos = max(round(rate * size), 1)
        rng = np.random.default_rng([seed, size, num_pos])
        risks = estimate_risks(distribution, num_pos, size - num_pos, trials, rng, setting)
        for estimator, risk in risks.items():
            truth = soprc_risk if estimator == SOPRC_SURROGATES else auprc_risk
            mean = risk.mean().item()
            std = risk.std().item()
            figures = truth, mean, mean - truth, std / trials**0.5, std
            yield BiasRow(distribution.name, estimator, size, rate, *figures)


class InterpolationErrorRow(NamedTuple):
    """Errors of phi on the quantiles from 0.1 to 0.9."""

    distribution: str  # Name of the score distribution
    num_scores: int  # Scores n that phi interpolates
    error: float  # Largest error for scores that lie at the quantiles i/n
    bound: float  # ``max|p''|/(8 n^2)`` over the same quantiles
    # Largest error over ``|p''|/(8 n^2)`` of its own interval; 0 where both vanish
    local_ratio: float
    # Largest error of the expected phi of random scores. It shrinks like 1/n: proposition 3 assumes
    # that the expected i-th score is the quantile i/n, which it is up to 1/n.
    expected_error: float
    std: float  # Mean standard deviation of one phi of random scores


def interpolation_errors(
    distribution: ScoreDistribution, num_scores: int, trials: int, seed: int
) -> InterpolationErrorRow:
    """Compare phi with the quantile function p of the positives: figures 1c, 5, proposition 3.

    ``num_scores`` is a multiple of 10 and at least 20.
    """
    n = num_scores
    p = distribution.positive.ppf
    length = _POINTS_PER_INTERVAL * n
    x = np.arange(length) / length
    # The shifted line needs the interval to the right as well.
    points = np.flatnonzero((x > INNER[0]) & (x < INNER[1] - 1 / n))
    knots = p(np.arange(1, n + 1) / n)
    # The last knot may be infinite; it is far from the inner quantiles.
    knots[-1] = min(knots[-1], p(1 - 0.1 / n))

    def phi_of(scores: np.ndarray) -> np.ndarray:
        return distribution.phi(torch.from_numpy(np.atleast_2d(scores)), length).numpy()[:, points]

    error = np.abs(phi_of(knots)[0] - (p(x) + p(x + 1 / n))[points] / 2)
    # Rounding of p is not an error of interpolation.
    error = np.where(error < 1e-12, 0, error)
    # |p''| from p' = 1/f(p), f the density of a positive's score, over each interval from i/n to
    # (i + 1)/n.
    scores = p((np.arange(n)[:, None] + np.linspace(0, 1, 33)) / n)
    with np.errstate(divide='ignore', invalid='ignore'):
        curvature = np.abs(distribution.log_slope(scores) / distribution.positive.pdf(scores) ** 2)
    limits = np.nan_to_num(curvature, nan=np.inf, posinf=np.inf).max(1) / (8 * n**2)
    interval = points // _POINTS_PER_INTERVAL
    limit = (limits[interval] + limits[interval + 1]) / 2
    ratio = np.divide(error, limit, out=np.zeros_like(error), where=limit > 0)

    rng = np.random.default_rng([seed, n])
    random = phi_of(distribution.sample_positives(trials, n, rng).numpy())
    # The expected i-th smallest of n random scores; ends accurate to 1e-3.
    fine = midpoints(20_000)
    i = np.arange(1, n + 1)[:, None]
    expected = phi_of(stats.beta.pdf(fine, i, n + 1 - i) @ p(fine) / len(fine))[0]
    bound = limits[round(INNER[0] * n) : round(INNER[1] * n)].max()
    expected_error = np.abs(expected - p(x[points])).max()
    figures = error.max(), bound, ratio.max(), expected_error, random.std(0, ddof=1).mean()
    return InterpolationErrorRow(distribution.name, n, *map(float, figures))


class ScoreVectorNoise(NamedTuple):
    """Mean and variance of v that began at a wrong value, against proposition 1; (K,) arrays."""

    momentum: float  # beta
    steps: np.ndarray  # Numbers of steps T, ascending
    distance: np.ndarray  # Mean distance of v from the mean phi, over the start's
    expected_distance: np.ndarray  # ``(1 - beta)^T``
    variance: np.ndarray  # Variance of v over the variance of phi
    expected_variance: np.ndarray  # ``beta (1 - (1 - beta)^2T)/(2 - beta)``, from eq. 21
    largest_variance: float  # ``beta/(2 - beta)``


def score_vector_noise(
    distribution: ScoreDistribution, momentum: float, steps: int, trials: int, seed: int
) -> ScoreVectorNoise:
    """Run many score vectors of the training's state side by side under a frozen model."""
    num_pos = 8
    length = 20
    offset = 1.0
    rng = np.random.default_rng([seed, num_pos])
    score_range = distribution.score_range

    def batch(rows):
        pos = distribution.sample_positives(rows, num_pos, rng)
        return pos, torch.ones_like(pos, dtype=torch.bool)

    unmoved = ScoreVector(20 * trials, length, mode='off', score_range=score_range)
    phi = unmoved.update(batch(20 * trials)).double()
    phi_mean = phi.mean(0)
    phi_variance = phi.var(0)
    state = ScoreVector(trials, length, momentum, score_range=score_range)
    state.vector.copy_(phi_mean + offset)
    # A row that was never seen would be set by its first batch.
    state.num_updates.fill_(1)
    distance = []
    variance = []
    for _ in range(steps):
        v = state.update(batch(trials)).double()
        distance.append((v.mean(0) - phi_mean).mean().item() / offset)
        variance.append((v.var(0) / phi_variance).mean().item())
    times = np.arange(1, steps + 1)
    largest = momentum / (2 - momentum)
    return ScoreVectorNoise(
        momentum,
        times,
        np.array(distance),
        (1 - momentum) ** times,
        np.array(variance),
        largest * (1 - (1 - momentum) ** (2 * times)),
        largest,
    )
