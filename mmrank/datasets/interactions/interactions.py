"""Positive pairs, a sparse matrix."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mmrank.checks import one_of
from mmrank.errors import UserError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

DUPLICATES = ('error', 'merge')


@dataclass(eq=False)
class Interactions:
    """Positive pairs, sorted by row and column.

    Attributes:
        rows: (P,) int64 left entities in ``[0, m)``, ascending.
        cols: (P,) int64 right entities in ``[0, n)``, ascending in a row.
        row_names: Names of the m left entities in the file.
        col_names: Names of the n right entities.
        row_features: (m, number of features) float32 features of the left entities, or None.
        num_unknown: Pairs that were left out because one of their entities is not in the vocabulary
            that was given.
    """

    rows: np.ndarray
    cols: np.ndarray
    row_names: Sequence[str]
    col_names: Sequence[str]
    row_features: 'csr_array | None' = None
    num_unknown: int = 0

    def __post_init__(self) -> None:
        self.rows, self.cols = (np.asarray(x, dtype=np.int64) for x in (self.rows, self.cols))
        keys = self.rows * self.shape[1] + self.cols
        if (keys[1:] <= keys[:-1]).any():
            raise ValueError(
                'pairs must be distinct and sorted by row and column; use Interactions.of_pairs'
            )
        self._keys = keys

    @classmethod
    def of_pairs(
        cls,
        rows: np.ndarray,
        cols: np.ndarray,
        row_names: Sequence[str],
        col_names: Sequence[str],
        duplicates: str = 'error',
        **other,
    ) -> 'Interactions':
        """Sort pairs that come in any order; arguments are the attributes.

        ``duplicates='error'`` refuses a pair that occurs twice, ``'merge'`` keeps one of it.

        Raises:
            ValueError: On a duplicate, or an unknown ``duplicates``.
        """
        one_of('duplicates', duplicates, DUPLICATES)
        n = max(len(col_names), 1)
        keys = np.asarray(rows, dtype=np.int64) * n
        keys += cols
        keys.sort()
        fresh = np.ones(len(keys), dtype=bool)
        fresh[1:] = keys[1:] != keys[:-1]
        if not fresh.all():
            if duplicates == 'error':
                row, col = divmod(int(keys[~fresh][0]), n)
                raise UserError(
                    f'{int((~fresh).sum())} pairs occur more than once, the first is '
                    f"({row_names[row]!s:.80}, {col_names[col]!s:.80}). Fix: duplicates='merge' "
                    'counts each pair once'
                )
            keys = keys[fresh]
        rows, cols = np.divmod(keys, n)
        return cls(rows, cols, row_names, col_names, **other)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        return len(self.row_names), len(self.col_names)

    def __len__(self) -> int:
        return len(self.rows)

    def is_positive(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Look pairs of integers in ``[0, m)`` and ``[0, n)`` up, in O(log P) each.

        Returns:
            Bool array of the shape to which ``rows`` and ``cols`` broadcast.
        """
        keys = np.asarray(rows) * self.shape[1] + np.asarray(cols)
        if not len(self._keys):
            return np.zeros(keys.shape, dtype=bool)
        place = np.searchsorted(self._keys, keys)
        place = np.minimum(place, len(self._keys) - 1)
        return self._keys[place] == keys

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
