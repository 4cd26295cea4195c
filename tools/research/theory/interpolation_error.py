"""Error of the interpolated scores phi against the quantiles they approximate.

The simulation of SOPRC (NeurIPS 2022), figures 1c and 5, for its
proposition 3.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from mmrank.functional import interpolate_scores
from research.theory.score_distributions import ScoreDistribution

# Quantiles between which p'' is bounded for all distributions.
INNER = (0.1, 0.9)
_POINTS_PER_INTERVAL = 20


@dataclass(frozen=True)
class InterpolationErrorRow:
    """Errors of phi on the quantiles from 0.1 to 0.9.

    Attributes:
        distribution: Name of the score distribution.
        num_scores: Scores n that phi interpolates.
        error: Largest error for scores that lie at the quantiles i/n.
        bound: ``max|p''|/(8 n^2)`` over the same quantiles.
        local_ratio: Largest error over ``|p''|/(8 n^2)`` of its own interval; 0 where both vanish.
        expected_error: Largest error of the expected phi of random scores.
            It shrinks like 1/n: proposition 3 assumes that the expected
            i-th score is the quantile i/n, which it is up to 1/n.
        std: Mean standard deviation of one phi of random scores.
    """

    distribution: str
    num_scores: int
    error: float
    bound: float
    local_ratio: float
    expected_error: float
    std: float


def interpolation_errors(
    distribution: ScoreDistribution, num_scores: int, trials: int, seed: int
) -> InterpolationErrorRow:
    """Compare phi with the quantile function p of the positives.

    phi is the mean of two lines through the knots ``p(i/n)``, one of them shifted by an interval;
    either follows p within proposition 3, so their mean is compared with ``(p(x) + p(x + 1/n))/2``.
    For random scores the order statistics lie to the left of the quantiles i/n by as much as the
    shift moves them to the right, so their expected phi is compared with ``p(x)``. Away from the
    extrapolated ends it is phi of the expected order statistics.

    Args:
        distribution: The scores.
        num_scores: Scores n of a batch, a multiple of 10 (the quantiles 0.1 and 0.9 are then
            knots), at least 20.
        trials: Random batches.
        seed: Of the random batches.

    Returns:
        The errors.

    Raises:
        ValueError: If ``num_scores`` does not fit.
    """
    if num_scores < 20 or num_scores % 10:
        raise ValueError(f'num_scores must be a multiple of 10 and at least 20, got {num_scores!r}')
    n, p = num_scores, distribution.quantile
    length = _POINTS_PER_INTERVAL * n
    x = np.arange(length) / length
    # The shifted line needs the interval to the right as well.
    points = np.flatnonzero((x > INNER[0]) & (x < INNER[1] - 1 / n))
    knots = p(np.arange(1, n + 1) / n)
    # The last knot may be infinite; it is far from the inner quantiles.
    knots[-1] = min(knots[-1], p(1 - 0.1 / n))
    phi = _phi(distribution, knots[None], length)[0]
    error = np.abs(phi - (p(x) + p(x + 1 / n)) / 2)[points]
    limit = _local_bound(distribution, n)
    interval = points // _POINTS_PER_INTERVAL
    limit = (limit[interval] + limit[interval + 1]) / 2
    inner = slice(round(INNER[0] * n), round(INNER[1] * n))
    # Rounding of p is no error of interpolation.
    error = np.where(error < 1e-12, 0, error)
    ratio = np.divide(error, limit, out=np.zeros_like(error), where=limit > 0)

    rng = np.random.default_rng([seed, n])
    scores = distribution.sample_positives(trials, n, rng).numpy()
    random = _phi(distribution, scores, length)[:, points]
    expected = _phi(distribution, expected_order_statistics(distribution, n)[None], length)[
        0, points
    ]
    expected_error = np.abs(expected - p(x[points]))
    return InterpolationErrorRow(
        distribution=distribution.name,
        num_scores=n,
        error=float(error.max()),
        bound=float(_local_bound(distribution, n)[inner].max()),
        local_ratio=float(ratio.max()),
        expected_error=float(expected_error.max()),
        std=float(random.std(0, ddof=1).mean()),
    )


def expected_order_statistics(distribution: ScoreDistribution, num_scores: int) -> np.ndarray:
    """Expected i-th smallest of n random scores of positives.

    ``E u_i = int_0^1 p(x) Beta(x; i, n + 1 - i) dx``, by the midpoint rule.

    Returns:
        (n,) ascending scores; those next to an infinite end are accurate to about 1e-3, all others
        far better.
    """
    x = (np.arange(20_000) + 0.5) / 20_000
    i = np.arange(1, num_scores + 1)[:, None]
    density = stats.beta.pdf(x, i, num_scores + 1 - i)
    return density @ distribution.quantile(x) / len(x)


def mean_interpolated_scores(
    distribution: ScoreDistribution, num_scores: int, length: int, trials: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of phi over random batches.

    Args:
        distribution: The scores.
        num_scores: Scores of a batch, >= 1.
        length: Points of phi.
        trials: Batches, >= 2.
        seed: Of the batches.

    Returns:
        Two arrays (length,).
    """
    rng = np.random.default_rng([seed, num_scores])
    scores = distribution.sample_positives(trials, num_scores, rng).numpy()
    phi = _phi(distribution, scores, length)
    return phi.mean(0), phi.std(0, ddof=1)


def _phi(distribution, scores: np.ndarray, length: int) -> np.ndarray:
    return interpolate_scores(torch.from_numpy(scores), length, *distribution.score_range).numpy()


def _local_bound(distribution, n: int) -> np.ndarray:
    """(n,) ``max|p''|/(8 n^2)`` over each interval from i/n to (i + 1)/n."""
    inside = np.linspace(0, 1, 33)
    x = (np.arange(n)[:, None] + inside) / n
    with np.errstate(divide='ignore', invalid='ignore'):
        curvature = np.abs(distribution.quantile_curvature(x))
    curvature = np.nan_to_num(curvature, nan=np.inf, posinf=np.inf)
    return curvature.max(1) / (8 * n**2)
