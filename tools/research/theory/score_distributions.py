"""Pairs of score distributions whose AUPRC is known, and that AUPRC.

The three pairs of SOPRC (NeurIPS 2022), figure 3, after Boyd et al. (2013).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import integrate, stats
from torch import Tensor

from mmrank.functional import OneSidedHuber, OneSidedSigmoid, pairwise_surrogate_sum


@dataclass(frozen=True)
class ScoreDistribution:
    """How positives and negatives are scored.

    Attributes:
        name: Short name for tables and files.
        formula: The two distributions, negatives first.
        positive: Frozen scipy distribution of a positive's score.
        negative: That of a negative's score.
        log_slope: Derivative of the log density of ``positive``.
        score_range: Range of all scores; infinite ends are fine.
    """

    name: str
    formula: str
    positive: Any
    negative: Any
    log_slope: Callable[[np.ndarray], np.ndarray]
    score_range: tuple[float, float]

    def sample(
        self, trials: int, num_pos: int, num_neg: int, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw the scores of ``trials`` batches.

        Returns:
            (trials, num_pos) and (trials, num_neg) scores, float64.
        """
        return (
            self.sample_positives(trials, num_pos, rng),
            _draw(self.negative, trials, num_neg, rng),
        )

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


def _draw(distribution, trials: int, count: int, rng) -> Tensor:
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
    """Area under the precision-recall curve of the population.

    ``int_0^1 pi u / (pi u + (1 - pi) FPR(u)) du`` over the recall u, by adaptive quadrature.
    Source: SOPRC (NeurIPS 2022), eq. 1.

    Args:
        distribution: The scores.
        prior: Share pi of the positives, in (0, 1).

    Returns:
        AUPRC in (0, 1), with an error below 1e-8.

    Raises:
        ValueError: If ``prior`` is not in (0, 1).
    """
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
    """What SOPRC's loss tends to for endless batches and an endless v.

    It differs from ``1 - AUPRC`` by what the surrogates l1 and l2 add. Both expectations are
    midpoint sums over quantiles. Source: SOPRC (NeurIPS 2022), eq. 4.

    Args:
        distribution: The scores.
        prior: Share of the positives, in (0, 1).
        tau1: Margin of l1, > 0.
        tau2: Temperature of l2, > 0.
        nodes: Quantiles of the outer mean; the inner ones take ten times as many for l2 and fifty
            times for l1.

    Returns:
        Risk in (0, 1).
    """
    pos = distribution.positive.ppf(_midpoints(nodes))
    neg = distribution.negative.ppf(_midpoints(50 * nodes))
    other = distribution.positive.ppf(_midpoints(10 * nodes))
    pos, neg, other = (torch.from_numpy(x)[None] for x in (pos, neg, other))
    above = pairwise_surrogate_sum(pos, neg, OneSidedHuber(tau1))
    higher = pairwise_surrogate_sum(pos, other, OneSidedSigmoid(tau2))
    above, higher = above / neg.numel(), higher / other.numel()
    x = (1 - prior) / prior * above / higher
    return (1 - 1 / (1 + x)).mean().item()


def _midpoints(count: int) -> np.ndarray:
    return (np.arange(count) + 0.5) / count
