"""How temperatures of samples go with the frequency of their classes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

# Numbers in memory at a time.
_BLOCK = 1 << 22


def permuted_blocks(values: np.ndarray, draws: int, seed: int) -> Iterator[np.ndarray]:
    """Copies of an array with its last axis permuted, each row by itself.

    Args:
        values: (..., n).
        draws: Number of copies.
        seed: Of the permutations.

    Yields:
        (copies, ..., n), in all ``draws`` copies.
    """
    rng = np.random.default_rng(seed)
    size = max(1, _BLOCK // values.size)
    for start in range(0, draws, size):
        count = min(size, draws - start)
        yield rng.permuted(np.tile(values, (count,) + (1,) * values.ndim), axis=-1)


#: Of the permutation test.
PERMUTATIONS = 20_000


@dataclass(frozen=True)
class ClassTemperature:
    """Temperatures of the samples of one class.

    Attributes:
        name: The class.
        count: Samples, visited ones only.
        mean: Mean temperature; NaN without a sample.
        std: Standard deviation over the samples.
        hot_share: Share of the samples that are among the hottest.
        cold_share: Share of them among the coldest.
    """

    name: str
    count: int
    mean: float
    std: float
    hot_share: float
    cold_share: float


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rank correlation.

    Attributes:
        rho: In [-1, 1]; NaN if a side is constant.
        p_value: Two-sided, of a permutation test; NaN if rho is.
        count: Pairs.
    """

    rho: float
    p_value: float
    count: int

    def __str__(self) -> str:
        """As a text to print."""
        if np.isnan(self.rho):
            return f'not defined (constant), n = {self.count}'
        return f'{self.rho:+.3f} (p = {self.p_value:.2g}, n = {self.count:,})'


def rank_correlation(
    x: np.ndarray, y: np.ndarray, permutations: int = PERMUTATIONS, seed: int = 0
) -> RankCorrelation:
    """Spearman's rank correlation with the p-value of a permutation test.

    The usual t-approximation is not to be trusted with ten classes.

    Args:
        x: (n,) numbers, ties ranked by their mean.
        y: (n,) numbers.
        permutations: Of the test. The smallest p-value is one over one more.
        seed: Of the permutations.
    """
    ranks = [rankdata(v) - (len(v) + 1) / 2 for v in (x, y)]
    scale = np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum())
    if not scale > 0:
        return RankCorrelation(np.nan, np.nan, len(x))
    first, second = ranks
    rho = first @ second / scale
    as_extreme = 0
    for shuffled in permuted_blocks(second, permutations, seed):
        # Rounding must not tell a permutation from one that equals it.
        others = np.abs(shuffled @ first) / scale
        as_extreme += int((others >= abs(rho) - 1e-12).sum())
    p_value = (as_extreme + 1) / (permutations + 1)
    return RankCorrelation(float(rho), p_value, len(x))


def extreme_samples(
    tau: np.ndarray, visited: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The samples of the largest and of the smallest temperatures.

    Args:
        tau: (N,).
        visited: (N,) bool; others are left out.
        count: Of each at most; never a sample in both.

    Returns:
        Indices, the hottest first, and indices, the coldest first.
    """
    known = np.flatnonzero(visited)
    order = known[np.argsort(tau[known], kind='stable')]
    count = min(count, len(order) // 2)
    return order[::-1][:count], order[:count]


def class_temperatures(
    tau: np.ndarray,
    visited: np.ndarray,
    labels: np.ndarray,
    names: Sequence[str],
    num_extreme: int = 600,
) -> list[ClassTemperature]:
    """Temperatures by class.

    Args:
        tau: (N,).
        visited: (N,) bool; other samples are left out.
        labels: (N,) class indices.
        names: Of the classes.
        num_extreme: How many samples count as hottest and as coldest; the paper's figure 5 takes
            600.

    Returns:
        One row for each name, in the order of the names.
    """
    hot, cold = extreme_samples(tau, visited, num_extreme)
    is_hot, is_cold = (np.isin(np.arange(len(tau)), i) for i in (hot, cold))
    rows = []
    for label, name in enumerate(names):
        own = visited & (labels == label)
        count = int(own.sum())
        statistics = (
            values[own].mean() if count else np.nan
            for values in (tau.astype(np.float64), is_hot, is_cold)
        )
        mean, hot_share, cold_share = map(float, statistics)
        std = float(tau[own].std()) if count else np.nan
        rows.append(ClassTemperature(name, count, mean, std, hot_share, cold_share))
    return rows


def frequency_correlation(rows: Sequence[ClassTemperature]) -> RankCorrelation:
    """Rank correlation of the size of a class and its mean temperature.

    Classes are the units: the samples of one class are not independent, and with thousands of them
    any difference would be significant.

    Args:
        rows: Of :func:`class_temperatures`; classes without a sample are
            left out.
    """
    there = [row for row in rows if row.count]
    return rank_correlation(
        np.array([row.count for row in there], dtype=float), np.array([row.mean for row in there])
    )
