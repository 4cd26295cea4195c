"""Embeddings in a file, of which a part is in memory at a time."""

import mmap
import os
import tempfile
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

# A page that is read brings its neighbours along.
_PAGES = 2**16


class StoredEmbeddings:
    """Rows of a ``numpy.memmap``, in an order of one's own.

    Args:
        array: (M, D) floats, mapped from a file.
        rows: (N,) int64 rows of it; None for all, in their order.

    Raises:
        TypeError: If it is no ``numpy.memmap``.

    Example:
        >>> array = np.memmap('x.npy', 'float32', 'r', 128, (1000, 64))
        >>> StoredEmbeddings(array, torch.arange(10)).shape
        (10, 64)
    """

    def __init__(self, array: np.memmap, rows: Tensor | None = None) -> None:
        if not isinstance(array, np.memmap):
            raise TypeError(
                f'array must be a numpy.memmap, got {type(array).__name__}; '
                "read an .npy file with np.load(path, mmap_mode='r')"
            )
        self.array = array
        self.rows = None if rows is None else rows.cpu()

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, D)."""
        rows = len(self.array) if self.rows is None else self.rows.numel()
        return (rows, *self.array.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        """That of torch."""
        return torch.from_numpy(np.empty(0, self.array.dtype)).dtype

    @property
    def folder(self) -> str:
        """Folder of the file."""
        return os.path.dirname(os.path.abspath(self.array.filename))

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, rows: Tensor) -> Tensor:
        """A copy of some rows.

        Args:
            rows: (n,) int64 among the N.

        Returns:
            (n, D) on the CPU.
        """
        if self.rows is not None:
            rows = self.rows[rows]
        found = np.array(self.array[rows.numpy()], subok=False)
        self._forget_pages()
        return torch.from_numpy(found)

    def rows_at_a_time(self, limit: int) -> int:
        """How many rows may be read at once within ``limit`` bytes."""
        row = max(self.shape[1] * self.array.itemsize, 1)
        return max(limit // max(4 * row, _PAGES), 2)

    def _forget_pages(self) -> None:
        """Pages that were read count as memory of this process until then."""
        base = self.array
        while isinstance(base, np.ndarray):
            base = base.base
        # What was written to a private copy is nowhere else.
        if isinstance(base, mmap.mmap) and self.array.mode != 'c':
            base.madvise(mmap.MADV_DONTNEED)


class ScratchRows:
    """(N, D) floats in a file without a name, which ends with this object.

    Args:
        dtype: float32 or float64.
        dimensions: D.
        folder: Where the file is.
    """

    def __init__(self, dtype: torch.dtype, dimensions: int, folder: str | None) -> None:
        self.dtype, self._dimensions = dtype, dimensions
        self._rows = 0
        self._type = torch.empty(0, dtype=dtype).numpy().dtype
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115

    def __len__(self) -> int:
        return self._rows

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self._dimensions * self._type.itemsize

    def append(self, rows: Tensor) -> None:
        """Write (n, D) rows behind those that are there."""
        self._file.seek(self._rows * self.row_bytes)
        self._file.write(rows.contiguous().numpy().data)
        self._rows += rows.size(0)

    def read(self, begin: int, end: int) -> Tensor:
        """Rows ``begin`` to ``end``, (end - begin, D)."""
        self._file.seek(begin * self.row_bytes)
        found = np.fromfile(self._file, self._type, (end - begin) * self._dimensions)
        return torch.from_numpy(found.reshape(-1, self._dimensions))

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """First row and content of each block of ``size`` rows."""
        for begin in range(0, self._rows, size):
            yield begin, self.read(begin, min(begin + size, self._rows))

    def take(self, rows: Tensor, size: int) -> Tensor:
        """Some rows, with blocks of ``size`` rows in memory at a time.

        Args:
            rows: (n,) int64, ascending.
            size: Rows of a block.

        Returns:
            (n, D).
        """
        parts = [self.read(0, 0)]
        begin = 0
        while begin < rows.numel():
            first = int(rows[begin])
            end = int(torch.searchsorted(rows, first + size))
            here = rows[begin:end] - first
            block = self.read(first, first + int(here[-1]) + 1)
            parts.append(block[here])
            begin = end
        return torch.cat(parts)
