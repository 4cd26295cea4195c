"""Which images of a balanced data set make its long-tailed version, and its parts."""

import numpy as np

from mmrank.datasets.permutation import permutation
from mmrank.errors import UserError
from mmrank.settings import check_at_least, check_within

PARTS = ('train', 'val', 'test')


def exponential_sizes(num_classes: int, largest: int, imbalance_ratio: float) -> np.ndarray:
    """(C,) class sizes ``largest * imbalance_ratio^(-c / (C - 1))``, rounded down.

    Source: Cui et al., Class-Balanced Loss Based on Effective Number of Samples, CVPR 2019, in the
    form of Cao et al., LDAM, NeurIPS 2019. The ratio is the largest class's to the smallest's.
    """
    check_at_least(2, num_classes=num_classes)
    check_within('[1, inf)', imbalance_ratio=imbalance_ratio)
    place = np.arange(num_classes) / (num_classes - 1)
    sizes = largest * (1 / imbalance_ratio) ** place
    # Rounding errors must not make 49 of 50.
    sizes = np.floor(sizes + 1e-6).astype(np.int64)
    if sizes[-1] < 1:
        raise UserError(
            f'imbalance_ratio={imbalance_ratio!r} leaves no image of the smallest class, as the '
            f'largest one has {largest}. Fix: at most imbalance_ratio={largest}'
        )
    return sizes


def ranked_classes(num_classes: int, order_seed: int | None) -> np.ndarray:
    """(C,) place of each class in the order of falling size.

    ``order_seed`` None: class 0 is the largest, as published. Else the seed, at least 0, decides
    which class is how large.
    """
    if order_seed is None:
        return np.arange(num_classes)
    check_at_least(0, order_seed=order_seed)
    return permutation(num_classes, order_seed)


def shuffled_classes(labels: np.ndarray, seed: int) -> list[np.ndarray]:
    """The indices of each class in an order that the seed decides, given the (N,) labels.

    What is taken from the front of these arrays is a subset; a larger imbalance ratio takes a
    subset of what a smaller one takes.
    """
    check_at_least(0, seed=seed)
    order = []
    for label in range(int(labels.max(initial=-1)) + 1):
        members = np.flatnonzero(labels == label)
        order.append(members[permutation(len(members), seed, label)])
    return order


def check_class_sizes(wanted, classes: list[np.ndarray], reason: str) -> None:
    """Raise a ``UserError`` if ``reason`` takes more images of a class than there are."""
    for label, (size, members) in enumerate(zip(wanted, classes)):
        if size > len(members):
            what = f'{reason} takes {size} images of class {label}, which has only {len(members)}'
            raise UserError(what, 'take fewer')


def _split_sizes(sizes: np.ndarray) -> np.ndarray:
    """(3, C) images of the classes in training, validation and test part, 8:1:1.

    They sum to ``sizes``. Validation and test get at least one image of a class that has three.
    """
    tenth = np.maximum(np.floor(sizes / 10 + 0.5), sizes >= 3)
    return np.stack([sizes - 2 * tenth, tenth, tenth]).astype(np.int64)


def choose_part(labels: np.ndarray, sizes: np.ndarray, part: str, seed: int) -> np.ndarray:
    """Rising indices of the images of a part; parts share no image, each class is split alike.

    ``labels`` are the (N,) classes of the images, ``sizes`` the (C,) images to take of each.
    Another seed takes and splits otherwise.
    """
    classes = shuffled_classes(labels, seed)
    check_class_sizes(sizes, classes, 'the long tail')
    ends = np.cumsum(_split_sizes(sizes), axis=0)
    row = PARTS.index(part)
    begins = ends[row - 1] if row else np.zeros_like(sizes)
    chosen = [members[begin:end] for members, begin, end in zip(classes, begins, ends[row])]
    return np.sort(np.concatenate(chosen))
