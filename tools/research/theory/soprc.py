"""The simulations of SOPRC (NeurIPS 2022): score distributions, bias of AUPRC estimates.

Three pairs of score distributions, figure 3, after Boyd et al. (2013); their AUPRC is known by
integration. Batches are drawn from the distributions themselves, not from 100,000 points drawn
once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

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
from theory.stable_ap import ap_risk, scores_of

AVERAGE_PRECISION = 'average precision'
SOPRC = 'SOPRC'
SOPRC_WITHOUT_V = 'SOPRC without v'
SOPRC_SURROGATES = 'SOPRC with surrogates'
ESTIMATORS = (AVERAGE_PRECISION, SOPRC, SOPRC_WITHOUT_V, SOPRC_SURROGATES)
# Below any difference of two scores: l2 is then l01.
_SHARP = 1e-9


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

    def sample(
        self, trials: int, num_pos: int, num_neg: int, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """(trials, num_pos) and (trials, num_neg) scores, float64, of ``trials`` batches."""
        pos = self.sample_positives(trials, num_pos, rng)
        return pos, _draw(self.negative, trials, num_neg, rng)

    def sample_positives(self, trials: int, num_pos: int, rng: np.random.Generator) -> Tensor:
        """(trials, num_pos) scores of positives, float64."""
        return _draw(self.positive, trials, num_pos, rng)

    def quantile(self, x: np.ndarray) -> np.ndarray:
        """Score p(x) in the bottom x-quantile of the positives."""
        return self.positive.ppf(x)

    def quantile_curvature(self, x: np.ndarray) -> np.ndarray:
        """p''(x), from p' = 1/f(p), f the density of a positive's score."""
        score = self.positive.ppf(x)
        return -self.log_slope(score) / self.positive.pdf(score) ** 2

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
    if not 0 < prior < 1:
        raise ValueError(f'prior must be in (0, 1), got {prior!r}')

    def precision(recall):
        threshold = distribution.positive.isf(recall)
        false = (1 - prior) * distribution.negative.sf(threshold)
        return prior * recall / (prior * recall + false)

    # Split where the curve of the offset uniform has its kink.
    area, _ = integrate.quad(precision, 0, 1, points=[0.5], epsabs=1e-9, limit=500)
    return area


def population_soprc_risk(
    distribution: ScoreDistribution, prior: float, tau1: float, tau2: float, nodes: int = 500
) -> float:
    """The limit of SOPRC's loss for endless batches and v: SOPRC (NeurIPS 2022), eq. 4."""
    pos = distribution.positive.ppf(midpoints(nodes))
    neg = distribution.negative.ppf(midpoints(50 * nodes))
    other = distribution.positive.ppf(midpoints(10 * nodes))
    pos, neg, other = (torch.from_numpy(x)[None] for x in (pos, neg, other))
    above = pairwise_surrogate_sum(pos, neg, OneSidedHuber(tau1)) / neg.numel()
    higher = pairwise_surrogate_sum(pos, other, OneSidedSigmoid(tau2)) / other.numel()
    x = (1 - prior) / prior * above / higher
    return (1 - 1 / (1 + x)).mean().item()


def midpoints(count: int) -> np.ndarray:
    return (np.arange(count) + 0.5) / count


@dataclass(frozen=True)
class BiasSetting:
    """Settings of the estimators."""

    prior: float = 0.1  # Share pi of the positives in the population
    length: int = 500  # Points V of the score vector v
    momentum: float = 0.1  # Weight beta of a new batch in v
    past_batches: int = 30  # Batches that v saw before the one that is estimated
    tau1: float = 0.1  # Margin of l1, for :data:`SOPRC_SURROGATES`
    tau2: float = 0.001  # Temperature of l2, likewise


@dataclass(frozen=True)
class BiasRow:
    """Estimates of one risk over ``trials`` batches with a share pi0 of positives."""

    distribution: str
    estimator: str
    batch_size: int
    sampling_rate: float
    truth: float
    mean: float
    std: float
    trials: int

    @property
    def bias(self) -> float:
        """Mean estimate minus the population value."""
        return self.mean - self.truth

    @property
    def standard_error(self) -> float:
        """Standard error of :attr:`mean` and of :attr:`bias`."""
        return self.std / self.trials**0.5


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
    pos, neg = distribution.sample(trials, num_pos, num_neg, rng)
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
            mean, std = risk.mean().item(), risk.std().item()
            yield BiasRow(distribution.name, estimator, size, rate, truth, mean, std, trials)
