"""Histograms of temperatures over a training."""

import os
from pathlib import Path

import numpy as np

from mmrank.files import write_csv_atomically

#: Of which the quantiles are noted.
LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


class TemperatureHistory:
    """Histogram, quantiles and mean at several times.

    Args:
        low: Smallest temperature.
        high: Largest temperature.
        num_bins: Of the histograms, from ``low`` to ``high``.

    Attributes:
        edges: (num_bins + 1,) of the histograms.
        steps: When each reading was taken.
        counts: For each, (num_bins,) samples in a bin.
        quantiles: For each, temperatures at ``LEVELS``.
        means: For each, the mean.

    Raises:
        ValueError: If the range is empty, or there is no bin.
    """

    def __init__(self, low: float, high: float, num_bins: int = 60) -> None:
        if not low < high:
            raise ValueError(f'temperatures must have a range, got {low} to {high}')
        if num_bins < 1:
            raise ValueError(f'num_bins must be at least 1, got {num_bins}')
        self.edges = np.linspace(low, high, num_bins + 1)
        self.steps: list[int] = []
        self.counts: list[np.ndarray] = []
        self.quantiles: list[np.ndarray] = []
        self.means: list[float] = []

    def add(self, step: int, tau: np.ndarray) -> None:
        """Take a reading; a step that is there already is replaced.

        Args:
            step: When: an epoch or an iteration, above those before.
            tau: (n,) temperatures of the visited samples.
        """
        self._cut(step)
        if not len(tau):
            return
        inside = np.clip(tau, self.edges[0], self.edges[-1])
        counts, _ = np.histogram(inside, self.edges)
        self.steps.append(int(step))
        self.counts.append(counts)
        self.quantiles.append(np.quantile(tau.astype(np.float64), LEVELS))
        self.means.append(float(tau.mean(dtype=np.float64)))

    def _cut(self, step: int) -> None:
        keep = sum(s < step for s in self.steps)
        for column in (self.steps, self.counts, self.quantiles, self.means):
            del column[keep:]

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
        history.steps = list(state['steps'])
        history.counts = [np.array(c) for c in state['counts']]
        history.quantiles = [np.array(q) for q in state['quantiles']]
        history.means = list(state['means'])
        return history

    def write_csv(self, path: str | os.PathLike) -> Path:
        """Write a line for each reading.

        Args:
            path: File; columns are ``step``, ``mean``, ``q0`` to ``q100``
                and ``from_<edge>``, the samples in a bin.

        Returns:
            ``path``.
        """
        rows = [
            [
                'step',
                'mean',
                *(f'q{100 * level:g}' for level in LEVELS),
                *(f'from_{edge:.5g}' for edge in self.edges[:-1]),
            ]
        ]
        for step, mean, quantiles, counts in zip(
            self.steps, self.means, self.quantiles, self.counts
        ):
            numbers = (f'{x:.6g}' for x in (mean, *quantiles))
            rows.append([step, *numbers, *counts])
        return write_csv_atomically(rows, path)
