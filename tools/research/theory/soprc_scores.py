"""The scores phi and v of SOPRC (NeurIPS 2022) against propositions 1 and 3."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats

from mmrank.state.score_vector import ScoreVector
from theory.soprc import ScoreDistribution, midpoints

# Quantiles between which p'' is bounded for all distributions.
INNER = (0.1, 0.9)
_POINTS_PER_INTERVAL = 20


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
    """Compare phi with the quantile function p of the positives: figures 1c, 5, proposition 3."""
    if num_scores < 20 or num_scores % 10:
        raise ValueError(f'num_scores must be a multiple of 10 and at least 20, got {num_scores!r}')
    n = num_scores
    p = distribution.quantile
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
    limits = _local_bound(distribution, n)
    interval = points // _POINTS_PER_INTERVAL
    limit = (limits[interval] + limits[interval + 1]) / 2
    ratio = np.divide(error, limit, out=np.zeros_like(error), where=limit > 0)

    rng = np.random.default_rng([seed, n])
    random = phi_of(distribution.sample_positives(trials, n, rng).numpy())
    expected = phi_of(expected_order_statistics(distribution, n))[0]
    bound = limits[round(INNER[0] * n) : round(INNER[1] * n)].max()
    expected_error = np.abs(expected - p(x[points])).max()
    figures = error.max(), bound, ratio.max(), expected_error, random.std(0, ddof=1).mean()
    return InterpolationErrorRow(distribution.name, n, *map(float, figures))


def expected_order_statistics(distribution: ScoreDistribution, num_scores: int) -> np.ndarray:
    """(n,) expected i-th smallest of n random scores of positives; ends accurate to 1e-3."""
    x = midpoints(20_000)
    i = np.arange(1, num_scores + 1)[:, None]
    density = stats.beta.pdf(x, i, num_scores + 1 - i)
    return density @ distribution.quantile(x) / len(x)


def mean_interpolated_scores(
    distribution: ScoreDistribution, num_scores: int, length: int, trials: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """(length,) mean and standard deviation of phi over ``trials`` >= 2 random batches."""
    rng = np.random.default_rng([seed, num_scores])
    phi = distribution.phi(distribution.sample_positives(trials, num_scores, rng), length).numpy()
    return phi.mean(0), phi.std(0, ddof=1)


def _local_bound(distribution: ScoreDistribution, n: int) -> np.ndarray:
    """(n,) ``max|p''|/(8 n^2)`` over each interval from i/n to (i + 1)/n."""
    x = (np.arange(n)[:, None] + np.linspace(0, 1, 33)) / n
    with np.errstate(divide='ignore', invalid='ignore'):
        curvature = np.abs(distribution.quantile_curvature(x))
    curvature = np.nan_to_num(curvature, nan=np.inf, posinf=np.inf)
    return curvature.max(1) / (8 * n**2)


@dataclass(frozen=True)
class ScoreVectorNoise:
    """Mean and variance of v that began at a wrong value, against proposition 1."""

    momentum: float  # beta
    steps: np.ndarray  # (K,) numbers of steps T, ascending
    distance: np.ndarray  # (K,) mean distance of v from the mean phi, over the start's
    variance: np.ndarray  # (K,) variance of v over the variance of phi

    @property
    def expected_distance(self) -> np.ndarray:
        """``(1 - beta)^T``."""
        return (1 - self.momentum) ** self.steps

    @property
    def expected_variance(self) -> np.ndarray:
        """``beta (1 - (1 - beta)^2T)/(2 - beta)``, from eq. 21."""
        return self.largest_variance * (1 - (1 - self.momentum) ** (2 * self.steps))

    @property
    def largest_variance(self) -> float:
        """``beta/(2 - beta)``."""
        return self.momentum / (2 - self.momentum)


def score_vector_noise(
    distribution: ScoreDistribution, momentum: float, steps: int, trials: int, seed: int
) -> ScoreVectorNoise:
    """Run many score vectors of the training's state side by side under a frozen model."""
    num_pos, length, offset = 8, 20, 1.0
    rng = np.random.default_rng([seed, num_pos])
    score_range = distribution.score_range

    def batch(rows):
        pos = distribution.sample_positives(rows, num_pos, rng)
        return pos, torch.ones_like(pos, dtype=torch.bool)

    unmoved = ScoreVector(20 * trials, length, mode='off', score_range=score_range)
    phi = unmoved.update(*batch(20 * trials)).double()
    phi_mean, phi_variance = phi.mean(0), phi.var(0)
    state = ScoreVector(trials, length, momentum, score_range=score_range)
    state.vector.copy_(phi_mean + offset)
    # A row that was never seen would be set by its first batch.
    state.num_updates.fill_(1)
    distance, variance = [], []
    for _ in range(steps):
        v = state.update(*batch(trials)).double()
        distance.append((v.mean(0) - phi_mean).mean().item() / offset)
        variance.append((v.var(0) / phi_variance).mean().item())
    return ScoreVectorNoise(
        momentum, np.arange(1, steps + 1), np.array(distance), np.array(variance)
    )
