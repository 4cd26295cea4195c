"""One class against the rest, in three parts of one long-tailed set."""

from collections.abc import Sequence

import numpy as np

from mmrank.datasets.long_tail.class_subset import (
    check_class_sizes,
    exponential_sizes,
    shuffled_classes,
)
from mmrank.errors import UserError

PARTS = ('train', 'val', 'test')
PROFILES = ('exponential', 'positives')


def long_tail_sizes(
    counts: np.ndarray, positive: Sequence[int], imbalance_ratio: float, profile: str
) -> np.ndarray:
    """Images to take of each class.

    Args:
        counts: (C,) images that there are.
        positive: The positive classes.
        imbalance_ratio: See ``profile``.
        profile: ``'exponential'``: the long tail over all classes, largest to smallest class.
            ``'positives'``: all images of the other classes, and so many of the positive ones,
            equally many of each, that there are ``imbalance_ratio`` negatives to a positive.

    Returns:
        (C,) int64.

    Raises:
        ValueError: If the ratio cannot be had.
    """
    if profile not in PROFILES:
        raise ValueError(f'profile must be one of {PROFILES}, got {profile!r}')
    if profile == 'exponential':
        sizes = exponential_sizes(len(counts), counts[0], imbalance_ratio)
    else:
        if not imbalance_ratio > 0:
            raise ValueError(
                'imbalance_ratio is the number of negatives to a positive '
                f'and must be above 0, got {imbalance_ratio!r}'
            )
        sizes = counts.copy()
        positive = list(positive)
        num_negative = counts.sum() - counts[positive].sum()
        share = num_negative / imbalance_ratio / len(positive)
        if share > counts[positive].min():
            least = num_negative / (counts[positive].min() * len(positive))
            raise ValueError(
                f'imbalance_ratio={imbalance_ratio!r} needs {share:.0f} images of each positive '
                f'class, of which the smallest has {counts[positive].min()}. Fix: at least '
                f'imbalance_ratio={least:.2f}'
            )
        sizes[positive] = int(share + 0.5)
    return sizes


def split_sizes(sizes: np.ndarray, ratios: Sequence[float] = (8, 1, 1)) -> np.ndarray:
    """Images of each class in each part.

    Args:
        sizes: (C,) images of each class.
        ratios: Of training, validation and test part.

    Returns:
        (3, C) int64, columns sum to ``sizes``; validation and test get at least one image of a
        class that has three.

    Raises:
        ValueError: If the ratios are not three numbers above 0.
    """
    if len(ratios) != 3 or not min(ratios) > 0:
        raise ValueError(
            f'ratios must be three numbers above 0, got {tuple(ratios)}; '
            '(8, 1, 1) is that of the paper'
        )
    total = sum(ratios)
    val, test = (np.maximum(np.floor(sizes * r / total + 0.5), sizes >= 3) for r in ratios[1:])
    return np.stack([sizes - val - test, val, test]).astype(np.int64)


def choose_part(
    labels: np.ndarray, sizes: np.ndarray, part: str, ratios: Sequence[float], seed: int
) -> np.ndarray:
    """The images of one part, each class split alike.

    Args:
        labels: (N,) class of each image.
        sizes: (C,) images to take of each class.
        part: ``'train'``, ``'val'`` or ``'test'``.
        ratios: See :func:`split_sizes`.
        seed: Another seed takes and splits otherwise.

    Returns:
        (n,) indices, rising. Parts share no image.
    """
    classes = shuffled_classes(labels, seed)
    check_class_sizes(sizes, classes, 'the long tail')
    ends = np.cumsum(split_sizes(sizes, ratios), axis=0)
    row = PARTS.index(part)
    begins = ends[row - 1] if row else np.zeros_like(sizes)
    chosen = [members[begin:end] for members, begin, end in zip(classes, begins, ends[row])]
    return np.sort(np.concatenate(chosen))


def check_both_sides(is_positive: np.ndarray, part: str, fix: str) -> None:
    """Refuse a part in which nothing can be ranked.

    Args:
        is_positive: (n,) bool.
        part: Its name.
        fix: What the user should do.

    Raises:
        UserError: If it has no positive or no negative.
    """
    num_positive = int(is_positive.sum())
    if not 0 < num_positive < len(is_positive):
        raise UserError(
            f'the {part} part has {num_positive} positives and {len(is_positive) - num_positive} '
            f'negatives, so that no positive can be ranked against a negative. Fix: {fix}'
        )
