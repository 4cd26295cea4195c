"""Random orders that stay the same in all versions of NumPy."""

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=2)  # what the batches of an epoch are cut from
def permutation(size: int, *numbers: int) -> np.ndarray:
    """(size,) int64 indices in an order that belongs to some numbers >= 0, a seed among them.

    Uniform numbers are sorted: the bits behind these stay the same. Do not write into the result.
    """
    draw = np.random.Generator(np.random.PCG64(numbers))
    return np.argsort(draw.random(size), kind='stable')
