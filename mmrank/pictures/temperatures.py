"""Learned temperatures of samples: reading, and statistics by class."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mmrank.checkpoint_loading import load_checkpoint
from mmrank.errors import UserError

#: Permutations of the test of a rank correlation.
_PERMUTATIONS = 20_000
# Numbers in memory at a time.
_BLOCK = 1 << 22


@dataclass(frozen=True)
class Temperatures:
    """Temperature of every sample of a training set.

    ``name`` is the buffer's name, such as ``'image_temperature'``; ``tau`` is (N,) float32.
    ``visited`` is (N,) bool, False for samples that still have the initial temperature.
    """

    name: str
    tau: np.ndarray
    visited: np.ndarray


def read_temperatures(path: str | os.PathLike, trust: bool = False) -> list[Temperatures]:
    """The temperatures in a ``.pth`` checkpoint; with ``trust`` the file may run code."""
    path = Path(path)
    fix = 'Fix: pass the .pth file of a training with mmrank.ISogCLRLoss'
    if not path.is_file():
        raise UserError(f'checkpoint {path} does not exist. {fix}')
    content = load_checkpoint(path, 'cpu', trust=trust)
    states = content.get('state_dict', content) if isinstance(content, dict) else {}
    names = [
        key.removesuffix('.tau')
        for key in states
        if key.endswith('.tau') and f'{key[:-4]}.log_s' in states
    ]
    if not names:
        raise UserError(
            f'{path} has no per-sample temperatures: no NAME.tau beside a NAME.log_s. {fix}'
        )
    # The last part of a name, where that tells them apart.
    short = [name.rpartition('.')[2] for name in names]
    shown = short if len(set(short)) == len(short) else names
    return [
        Temperatures(
            short_name,
            states[f'{name}.tau'].float().numpy(),
            np.isfinite(states[f'{name}.log_s'].numpy()),
        )
        for name, short_name in zip(names, shown)
    ]


@dataclass(frozen=True)
class ClassTemperature:
    """Temperatures of the visited samples of one class; NaN without one.

    The shares are of its samples, those among the hottest and among the coldest of all.
    """

    name: str
    count: int
    mean: float
    std: float
    hot_share: float
    cold_share: float


def extreme_samples(temperatures: Temperatures, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of at most ``count`` hottest and coldest visited samples.

    The hottest and the coldest come first; no sample is in both.
    """
    known = np.flatnonzero(temperatures.visited)
    order = known[np.argsort(temperatures.tau[known], kind='stable')]
    count = min(count, len(order) // 2)
    return order[::-1][:count], order[:count]


def class_temperatures(
    temperatures: Temperatures, labels: np.ndarray, names: Sequence[str], num_extreme: int
) -> list[ClassTemperature]:
    """Temperatures of the visited samples, a row for each class name."""
    samples = np.arange(len(labels))
    is_hot, is_cold = (np.isin(samples, x) for x in extreme_samples(temperatures, num_extreme))
    rows = []
    for label, name in enumerate(names):
        own = temperatures.visited & (labels == label)
        numbers = [np.nan] * 4
        if own.any():
            tau = temperatures.tau[own].astype(np.float64)
            numbers = [tau.mean(), tau.std(), is_hot[own].mean(), is_cold[own].mean()]
        rows.append(ClassTemperature(name, int(own.sum()), *map(float, numbers)))
    return rows


def permuted_blocks(values: np.ndarray, draws: int, seed: int) -> Iterator[np.ndarray]:
    """Yield blocks of copies of an array, ``draws`` in all, the last axis permuted row by row."""
    rng = np.random.default_rng(seed)
    size = max(1, _BLOCK // values.size)
    for start in range(0, draws, size):
        count = min(size, draws - start)
        yield rng.permuted(np.tile(values, (count,) + (1,) * values.ndim), axis=-1)


def frequency_correlation(rows: Sequence[ClassTemperature]) -> tuple[float, float]:
    """Spearman's correlation of the size of a class and its mean temperature, and its p-value.

    NaN if a side is constant. Classes without a sample are left out. Classes are the units: the
    samples of one class are not independent, and with thousands of them any difference would be
    significant. The two-sided p-value is of a permutation test, as the usual t-approximation is
    not to be trusted with ten classes.
    """
    from scipy.stats import rankdata

    seen = [row for row in rows if row.count]
    sizes = rankdata([row.count for row in seen]) - (len(seen) + 1) / 2
    heats = rankdata([row.mean for row in seen]) - (len(seen) + 1) / 2
    scale = np.sqrt((sizes**2).sum() * (heats**2).sum())
    if not scale > 0:
        return np.nan, np.nan
    rho = sizes @ heats / scale
    as_extreme = 0
    for shuffled in permuted_blocks(heats, _PERMUTATIONS, seed=0):
        # Rounding must not tell a permutation from one that equals it.
        as_extreme += int((np.abs(shuffled @ sizes) / scale >= abs(rho) - 1e-12).sum())
    return float(rho), (as_extreme + 1) / (_PERMUTATIONS + 1)
