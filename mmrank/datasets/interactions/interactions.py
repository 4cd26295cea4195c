"""Positive pairs, a sparse matrix."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class Interactions:
    """Positive pairs, sorted by row and column; one that is given several times counts once.

    Args:
        rows: Left entities in ``[0, m)``, in any order; as an attribute (P,) int64, ascending.
        cols: Right entities in ``[0, n)`` of these pairs; likewise, ascending in a row.
        row_names: Names of the m left entities in the file.
        col_names: Names of the n right entities.
        row_features: (m, number of features) float32 features of the left entities, or None.
        num_unknown: Pairs that were left out: an entity is not in the vocabulary that was given.

    Attributes:
        num_repeated: How many pairs were given more often than once.
    """

    def __init__(
        self,
        rows: np.ndarray,
        cols: np.ndarray,
        row_names: Sequence[str],
        col_names: Sequence[str],
        row_features: 'csr_array | None' = None,
        num_unknown: int = 0,
    ) -> None:
        self.shape = len(row_names), len(col_names)
        self.row_names = row_names
        self.col_names = col_names
        self.row_features = row_features
        self.num_unknown = num_unknown
        num_cols = max(len(col_names), 1)
        keys = np.asarray(rows, dtype=np.int64) * num_cols
        keys += np.asarray(cols)
        self._keys = np.unique(keys)
        self.num_repeated = len(keys) - len(self._keys)
        self.rows, self.cols = np.divmod(self._keys, num_cols)

    def __len__(self) -> int:
        return len(self.rows)

    def is_positive(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Look pairs of integers, which broadcast, up in O(log P) each."""
        keys = np.asarray(rows) * self.shape[1] + np.asarray(cols)
        place = np.searchsorted(self._keys, keys)
        return np.take(self._keys, place, mode='clip') == keys if len(self) else keys < 0

    @cached_property
    def row_starts(self) -> np.ndarray:
        """(m + 1,) int64: pairs of row i are ``row_starts[i]:row_starts[i + 1]``."""
        return np.searchsorted(self.rows, np.arange(self.shape[0] + 1))

    def of_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of some rows, one row after the other: places in ``rows``, and columns."""
        begins = self.row_starts[rows]
        counts = self.row_starts[rows + 1] - begins
        shifts = begins - (np.cumsum(counts) - counts)
        pairs = np.arange(counts.sum()) + np.repeat(shifts, counts)
        return np.repeat(np.arange(len(rows)), counts), self.cols[pairs]
