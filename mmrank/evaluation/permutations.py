"""Random permutations in blocks, for tests of what chance would give."""

from collections.abc import Iterator

import numpy as np

# Numbers in memory at a time.
_BLOCK = 1 << 22


def permuted_blocks(
    values: np.ndarray, draws: int, seed: int
) -> Iterator[np.ndarray]:
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
        yield rng.permuted(
            np.tile(values, (count,) + (1,) * values.ndim), axis=-1
        )
