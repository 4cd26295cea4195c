"""Sizes and members of long-tailed subsets and binary parts."""

import numpy as np
import pytest

from mmrank.datasets.long_tail.class_subset import (
    _split_sizes,
    choose_part,
    exponential_sizes,
    ranked_classes,
    shuffled_classes,
)


@pytest.mark.parametrize(
    ('num_classes', 'largest', 'ratio', 'total', 'smallest'),
    [
        # As published with the data sets.
        (10, 5000, 10, 20431, 500),
        (10, 5000, 50, 13996, 100),
        (10, 5000, 100, 12406, 50),
        (100, 500, 10, 19573, 50),
        (100, 500, 50, 12608, 10),
        (100, 500, 100, 10847, 5),
        (10, 5000, 1, 50000, 5000),
        # 1/3 of 3 falls below 1 in floating point.
        (2, 3, 3, 4, 1),
    ],
)
def test_sizes_are_the_published_ones(num_classes, largest, ratio, total, smallest):
    sizes = exponential_sizes(num_classes, largest, ratio)
    assert sizes[0] == largest
    assert sizes[-1] == smallest
    assert sizes.sum() == total
    assert (np.diff(sizes) <= 0).all()


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ((10, 5000, 0.5), 'must be in \\[1, inf\\), got 0.5'),
        ((10, 5000, float('inf')), 'got inf'),
        ((10, 5000, float('nan')), 'got nan'),
        ((1, 40, 5), 'num_classes must be at least 2, got 1'),
    ],
)
def test_bad_ratios_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        exponential_sizes(*arguments)


def test_members_follow_the_seed_alone():
    labels = np.array([2, 0, 1, 0, 2, 2, 1, 0] * 5)
    classes = shuffled_classes(labels, 3)
    for label, members in enumerate(classes):
        assert sorted(members) == np.flatnonzero(labels == label).tolist()
    again = shuffled_classes(labels, 3)
    other = shuffled_classes(labels, 4)
    assert all((a == b).all() for a, b in zip(classes, again))
    assert any((a != b).any() for a, b in zip(classes, other))
    # A change here changes the data of everyone's experiments.
    small = shuffled_classes(np.array([0, 1, 0, 1, 0, 1, 0]), 0)
    assert [x.tolist() for x in small] == [[6, 4, 2, 0], [3, 5, 1]]
    with pytest.raises(ValueError, match='seed must be at least 0, got -1'):
        shuffled_classes(labels, -1)
    # The places of the classes, likewise.
    assert ranked_classes(4, None).tolist() == [0, 1, 2, 3]
    assert ranked_classes(5, 3).tolist() == [0, 4, 1, 3, 2]
    with pytest.raises(ValueError, match='order_seed must be at least 0'):
        ranked_classes(5, -1)


def test_parts_are_eight_to_one_to_one_and_share_nothing():
    sizes = np.array([1000, 100, 10, 4, 3, 2, 1])
    parts = _split_sizes(sizes)
    assert parts.tolist() == [
        [800, 80, 8, 2, 1, 2, 1],
        [100, 10, 1, 1, 1, 0, 0],
        [100, 10, 1, 1, 1, 0, 0],
    ]
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(7), sizes + 5))
    chosen = [choose_part(labels, sizes, part, 7) for part in ('train', 'val', 'test')]
    for row, own in zip(parts, chosen):
        assert np.bincount(labels[own], minlength=7).tolist() == row.tolist()
    every = np.concatenate(chosen)
    assert len(set(every.tolist())) == len(every) == sizes.sum()
