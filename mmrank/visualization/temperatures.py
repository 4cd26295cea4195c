"""Learned temperatures of samples: reading, statistics by class, histograms over a training."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from mmrank.checkpoint_loading import load_checkpoint
from mmrank.checks import check_at_least
from mmrank.errors import UserError
from mmrank.files import write_csv_atomically
from mmrank.state.sample_averages import SampleTemperature

#: Quantiles that a history notes.
LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
#: Permutations of the test of a rank correlation.
PERMUTATIONS = 20_000
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


def temperatures_of(model: nn.Module) -> list[Temperatures]:
    """The temperatures that the losses of a model hold, copied to the host."""
    found = {
        name: (module.tau, module.log_s)
        for name, module in model.named_modules()
        if isinstance(module, SampleTemperature)
    }
    return _named(found)


def read_temperatures(path: str | os.PathLike, trust: bool = False) -> list[Temperatures]:
    """The temperatures in a ``.pth`` checkpoint; with ``trust`` the file may run code."""
    path = Path(path)
    fix = 'Fix: pass the .pth file of a training with mmrank.ISogCLRLoss'
    if not path.is_file():
        raise UserError(f'checkpoint {path} does not exist. {fix}')
    try:
        content = load_checkpoint(path, 'cpu', trust=trust)
        states = content.get('state_dict', content)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f'{path} is not a checkpoint: {type(error).__name__}: {error}. {fix}'
        ) from error
    found = {
        key.removesuffix('.tau'): (tau, states[f'{key[:-4]}.log_s'])
        for key, tau in states.items()
        if key.endswith('.tau') and f'{key[:-4]}.log_s' in states
    }
    if not found:
        raise UserError(
            f'{path} has no per-sample temperatures: no NAME.tau beside a NAME.log_s. {fix}'
        )
    return _named(found)


def _named(found: Mapping[str, tuple[torch.Tensor, torch.Tensor]]) -> list[Temperatures]:
    """Shorten names to their last part where that tells them apart."""
    short = [name.rpartition('.')[2] for name in found]
    names = short if len(set(short)) == len(short) else list(found)
    return [
        Temperatures(
            name,
            tau.detach().float().cpu().numpy().copy(),
            np.isfinite(log_s.detach().cpu().numpy()),
        )
        for name, (tau, log_s) in zip(names, found.values())
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


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rho and its two-sided p-value of a permutation test; NaN if a side is constant."""

    rho: float
    p_value: float
    count: int

    def __str__(self) -> str:
        if np.isnan(self.rho):
            return f'not defined (constant), n = {self.count}'
        return f'{self.rho:+.3f} (p = {self.p_value:.2g}, n = {self.count:,})'


def permuted_blocks(values: np.ndarray, draws: int, seed: int) -> Iterator[np.ndarray]:
    """Yield blocks of copies of an array, ``draws`` in all, the last axis permuted row by row."""
    rng = np.random.default_rng(seed)
    size = max(1, _BLOCK // values.size)
    for start in range(0, draws, size):
        count = min(size, draws - start)
        yield rng.permuted(np.tile(values, (count,) + (1,) * values.ndim), axis=-1)


def _rank_correlation(
    x: np.ndarray, y: np.ndarray, permutations: int = PERMUTATIONS, seed: int = 0
) -> RankCorrelation:
    """Spearman's rank correlation with the p-value of a permutation test.

    The usual t-approximation is not to be trusted with ten classes. Ties of the (n,) numbers are
    ranked by their mean. The smallest p-value is one over one more than ``permutations``.
    """
    from scipy.stats import rankdata

    first, second = (rankdata(v) - (len(v) + 1) / 2 for v in (x, y))
    scale = np.sqrt((first**2).sum() * (second**2).sum())
    if not scale > 0:
        return RankCorrelation(np.nan, np.nan, len(x))
    rho = first @ second / scale
    as_extreme = 0
    for shuffled in permuted_blocks(second, permutations, seed):
        # Rounding must not tell a permutation from one that equals it.
        others = np.abs(shuffled @ first) / scale
        as_extreme += int((others >= abs(rho) - 1e-12).sum())
    return RankCorrelation(float(rho), (as_extreme + 1) / (permutations + 1), len(x))


def extreme_samples(
    tau: np.ndarray, visited: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of at most ``count`` hottest and coldest visited ones of (N,) samples.

    The hottest and the coldest come first; no sample is in both.
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
    """Temperatures of the visited ones of (N,) samples, a row for each class name.

    ``num_extreme`` samples count as hottest and as coldest; the paper's figure 5 takes 600.
    """
    extremes = extreme_samples(tau, visited, num_extreme)
    is_hot, is_cold = (np.isin(np.arange(len(tau)), i) for i in extremes)
    rows = []
    for label, name in enumerate(names):
        own = visited & (labels == label)
        count = int(own.sum())
        mean, std, hot, cold = np.nan, np.nan, np.nan, np.nan
        if count:
            mean, std = tau[own].mean(dtype=np.float64), tau[own].std()
            hot, cold = is_hot[own].mean(), is_cold[own].mean()
        rows.append(ClassTemperature(name, count, *map(float, (mean, std, hot, cold))))
    return rows


def frequency_correlation(rows: Sequence[ClassTemperature]) -> RankCorrelation:
    """Rank correlation of the size of a class and its mean temperature.

    Classes without a sample are left out. Classes are the units: the samples of one class are not
    independent, and with thousands of them any difference would be significant.
    """
    counts, means = zip(*[(float(row.count), row.mean) for row in rows if row.count])
    return _rank_correlation(np.array(counts), np.array(means))


class TemperatureHistory:
    """Histogram, quantiles and mean at several times.

    ``edges`` is (num_bins + 1,), from ``low`` to ``high``. Each of ``steps`` has (num_bins,)
    ``counts``, ``quantiles`` at ``LEVELS`` and a mean.
    """

    def __init__(self, low: float, high: float, num_bins: int = 60) -> None:
        if not low < high:
            raise ValueError(f'temperatures must have a range, got {low} to {high}')
        check_at_least(1, num_bins=num_bins)
        self.edges = np.linspace(low, high, num_bins + 1)
        self.steps: list[int] = []
        self.counts: list[np.ndarray] = []
        self.quantiles: list[np.ndarray] = []
        self.means: list[float] = []

    def add(self, step: int, tau: np.ndarray) -> None:
        """Take (n,) temperatures of an epoch or iteration; replaces readings from it on."""
        keep = sum(s < step for s in self.steps)
        for column in (self.steps, self.counts, self.quantiles, self.means):
            del column[keep:]
        if not len(tau):
            return
        counts, _ = np.histogram(np.clip(tau, self.edges[0], self.edges[-1]), self.edges)
        self.steps.append(int(step))
        self.counts.append(counts)
        self.quantiles.append(np.quantile(tau.astype(np.float64), LEVELS))
        self.means.append(float(tau.mean(dtype=np.float64)))

    def state_dict(self) -> dict:
        """Lists of plain numbers, for a checkpoint."""
        return dict(
            edges=self.edges.tolist(),
            steps=list(self.steps),
            counts=[c.tolist() for c in self.counts],
            quantiles=[q.tolist() for q in self.quantiles],
            means=list(self.means),
        )

    @classmethod
    def from_state(cls, state: dict) -> 'TemperatureHistory':
        """The history that :meth:`state_dict` was taken of."""
        edges = state['edges']
        history = cls(edges[0], edges[-1], len(edges) - 1)
        history.edges = np.array(edges)
        history.steps, history.means = list(state['steps']), list(state['means'])
        history.counts = [np.array(c) for c in state['counts']]
        history.quantiles = [np.array(q) for q in state['quantiles']]
        return history

    def write_csv(self, path: str | os.PathLike) -> Path:
        """Write a line for each reading.

        Columns are ``step``, ``mean``, ``q0`` to ``q100`` and ``from_<edge>``, the samples in a
        bin.
        """
        quantiles = [f'q{100 * level:g}' for level in LEVELS]
        bins = [f'from_{edge:.5g}' for edge in self.edges[:-1]]
        rows = [['step', 'mean', *quantiles, *bins]]
        for step, mean, levels, counts in zip(self.steps, self.means, self.quantiles, self.counts):
            rows.append([step, *(f'{x:.6g}' for x in (mean, *levels)), *counts])
        return write_csv_atomically(rows, path)
