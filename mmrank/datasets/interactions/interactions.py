"""Sparse matrices: of positive pairs, and of features."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrank.checks import one_of
from mmrank.errors import UserError

DUPLICATES = ('error', 'merge')


def check_duplicates(duplicates: str) -> None:
    """Raise a ``ValueError`` on an unknown way to treat duplicates."""
    one_of('duplicates', duplicates, DUPLICATES)


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
        """The (U,) given rows, integers in ``[0, m)``, in that order."""
        begin = self.starts[rows]
        lengths = self.starts[np.asarray(rows) + 1] - begin
        starts = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.arange(starts[-1]) + np.repeat(begin - starts[:-1], lengths)
        return SparseFeatures(
            starts, self.indices[entries], self.values[entries], self.num_features
        )


@dataclass(eq=False)
class Interactions:
    """Positive pairs, sorted by row and column.

    Attributes:
        rows: (P,) int64 left entities in ``[0, m)``, ascending.
        cols: (P,) int64 right entities in ``[0, n)``, ascending in a row.
        row_names: Names of the m left entities in the file.
        col_names: Names of the n right entities.
        row_features: Features of the left entities, or None.
        num_unknown: Pairs that were left out because one of their entities is not in the vocabulary
            that was given.
    """

    rows: np.ndarray
    cols: np.ndarray
    row_names: Sequence[str]
    col_names: Sequence[str]
    row_features: SparseFeatures | None = None
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
        check_duplicates(duplicates)
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

    def row_starts(self) -> np.ndarray:
        """(m + 1,) int64: pairs of row i are ``starts[i]:starts[i + 1]``."""
        return np.searchsorted(self.rows, np.arange(self.shape[0] + 1))
