"""Which images of a balanced data set make its long-tailed version."""

import math

import numpy as np


def exponential_sizes(num_classes: int, largest: int, imbalance_ratio: float) -> np.ndarray:
    """Class sizes ``largest * imbalance_ratio^(-c / (C - 1))``, rounded down.

    Source: Cui et al., Class-Balanced Loss Based on Effective Number of Samples, CVPR 2019, in the
    form of Cao et al., LDAM, NeurIPS 2019.

    Args:
        num_classes: C, at least 2.
        largest: Images of class 0.
        imbalance_ratio: Size of the largest over that of the smallest class, at least 1.

    Returns:
        (C,) int64, falling.

    Raises:
        ValueError: If the ratio is out of range, or leaves a class empty.
    """
    if num_classes < 2:
        raise ValueError(f'a long tail needs 2 classes, got {num_classes}')
    if not 1 <= imbalance_ratio < math.inf:
        raise ValueError(
            'imbalance_ratio is the size of the largest over that of the '
            f'smallest class and must be at least 1, got {imbalance_ratio!r}'
        )
    place = np.arange(num_classes) / (num_classes - 1)
    sizes = largest * (1 / imbalance_ratio) ** place
    # Rounding errors must not make 49 of 50.
    sizes = np.floor(sizes + 1e-6).astype(np.int64)
    if sizes[-1] < 1:
        raise ValueError(
            f'imbalance_ratio={imbalance_ratio!r} leaves no image of the smallest class, as the '
            f'largest one has {largest}. Fix: at most imbalance_ratio={largest}'
        )
    return sizes


def ranked_classes(num_classes: int, order_seed: int | None) -> np.ndarray:
    """Place of each class in the order of falling size.

    Args:
        num_classes: C.
        order_seed: None: class 0 is the largest, as published. Else the seed decides which class is
            how large.

    Returns:
        (C,) int64, a permutation.

    Raises:
        ValueError: If the seed is negative.
    """
    if order_seed is None:
        return np.arange(num_classes)
    if order_seed < 0:
        raise ValueError(f'order_seed must be at least 0, got {order_seed}')
    keys = np.random.Generator(np.random.PCG64([order_seed])).random(num_classes)
    return np.argsort(keys, kind='stable')


def shuffled_classes(labels: np.ndarray, seed: int) -> list[np.ndarray]:
    """The images of each class in an order that the seed decides.

    What is taken from the front of these lists is a subset; a larger
    imbalance ratio takes a subset of what a smaller one takes.

    Args:
        labels: (N,) class of each image, 0 to C-1.
        seed: At least 0.

    Returns:
        C arrays of indices.

    Raises:
        ValueError: If the seed is negative.
    """
    if seed < 0:
        raise ValueError(f'seed must be at least 0, got {seed}')
    order = []
    for label in range(int(labels.max(initial=-1)) + 1):
        members = np.flatnonzero(labels == label)
        # Uniform numbers and a sort: the same in all versions of NumPy.
        rng = np.random.Generator(np.random.PCG64([seed, label]))
        keys = rng.random(len(members))
        order.append(members[np.argsort(keys, kind='stable')])
    return order


def check_class_sizes(wanted, classes: list[np.ndarray], reason: str) -> None:
    """Refuse sizes that a class does not have.

    Args:
        wanted: Images to take of each class.
        classes: Images that there are of each.
        reason: What takes them, for the message.

    Raises:
        ValueError: Naming the first class that is too small.
    """
    for label, (size, members) in enumerate(zip(wanted, classes)):
        if size > len(members):
            raise ValueError(
                f'{reason} takes {size} images of class {label}, which has only {len(members)}'
            )
