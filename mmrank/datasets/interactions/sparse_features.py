"""Sparse feature vectors of many entities."""

from dataclasses import dataclass

import numpy as np


@dataclass(eq=False)
class SparseFeatures:
    """Rows of a sparse matrix, one behind the other.

    Attributes:
        starts: (m + 1,) int64: entries of row i are ``[starts[i], starts[i + 1])``.
        indices: (E,) int32 feature numbers in ``[0, num_features)``.
        values: (E,) float32.
        num_features: Length of a vector.
    """

    starts: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    num_features: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    def take(self, rows: np.ndarray) -> 'SparseFeatures':
        """The given rows, in that order.

        Args:
            rows: (U,) integers in ``[0, m)``.
        """
        begin = self.starts[rows]
        lengths = self.starts[np.asarray(rows) + 1] - begin
        starts = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.arange(starts[-1]) + np.repeat(begin - starts[:-1], lengths)
        return SparseFeatures(
            starts, self.indices[entries], self.values[entries], self.num_features
        )
