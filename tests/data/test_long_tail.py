"""CIFAR-LT and its binary form from published files, arrays and folders; sizes of the subsets."""

from collections import Counter

import numpy as np
import pytest
import retrieval_trees
from cifar_trees import CIFAR10_NAMES, decode, every_image, write_arrays, write_pickles

from mmrank.datasets.long_tail.class_subset import (
    _split_sizes,
    exponential_sizes,
    ranked_classes,
    shuffled_classes,
)
from mmrank.errors import UserError

mmpretrain = pytest.importorskip('mmpretrain')

WRITERS = dict(arrays=write_arrays, pickles=write_pickles)


@pytest.fixture(autouse=True)
def any_md5(monkeypatch):
    """Take pickles made here for the published ones."""
    from mmpretrain.datasets import CIFAR10

    monkeypatch.setattr(CIFAR10, '_check_integrity', lambda self: True)


def build(root, name='CIFAR10LT', **settings):
    # Serialising runs the garbage collector, which takes most of a second.
    settings = {'imbalance_ratio': 10, 'serialize_data': False, **settings}
    return retrieval_trees.build(name, root, **settings)


def contents(dataset):
    return [decode(dataset.get_data_info(i)['img']) for i in range(len(dataset))]


@pytest.mark.parametrize('form', WRITERS)
def test_each_form_gives_the_same_kind_of_subset(tmp_path, form):
    root = WRITERS[form](tmp_path)
    train = build(root)
    found = contents(train)
    assert len(set(found)) == len(found)
    assert {part for part, *_ in found} == {'train'}
    labels = [label for _, label, _ in found]
    assert labels == train.get_gt_labels().tolist()
    sizes = [int(40 * 0.1 ** (c / 9) + 1e-6) for c in range(10)]
    assert Counter(labels) == dict(enumerate(sizes))
    assert train.metainfo['classes'] == CIFAR10_NAMES
    # Not the first ones of a class.
    assert {n for _, label, n in found if label == 4} != set(range(sizes[4]))

    test = build(root, split='test')
    expected = {x for x in every_image() if x[0] == 'test'}
    assert set(contents(test)) == expected
    assert len(test) == len(expected)


def test_another_order_makes_other_classes_rare(tmp_path):
    root = write_arrays(tmp_path)
    usual = np.bincount(build(root).get_gt_labels())
    other = build(root, order_seed=1)
    counts = np.bincount(other.get_gt_labels())
    assert counts.tolist() != usual.tolist()
    assert sorted(counts, reverse=True) == usual.tolist()
    val = [
        contents(build(root, split='val', val_per_class=4, order_seed=seed)) for seed in (None, 1)
    ]
    assert val[0] == val[1]


def test_validation_images_are_set_aside(tmp_path):
    root = write_arrays(tmp_path)
    val = build(root, split='val', val_per_class=8)
    found = contents(val)
    assert Counter(label for _, label, _ in found) == dict.fromkeys(range(10), 8)
    assert {part for part, *_ in found} == {'train'}
    train = contents(build(root, val_per_class=8))
    assert not set(train) & set(found)
    assert Counter(label for _, label, _ in train)[0] == 32
    other = contents(build(root, split='val', val_per_class=8, imbalance_ratio=2))
    assert other == found


@pytest.mark.parametrize('form', WRITERS)
def test_binary_parts(tmp_path, form):
    root = WRITERS[form](tmp_path)
    every = []
    for split in ('train', 'val', 'test'):
        part = build(root, 'CIFAR10BinaryLT', positive='bird', split=split, imbalance_ratio=15)
        found = contents(part)
        every += found
        labels = [int(label == 2) for _, label, _ in found]
        assert labels == part.get_gt_labels().tolist()
        assert part.metainfo['classes'] == ('rest', 'bird')
    assert len(set(every)) == len(every)
    counts = Counter(label for _, label, _ in every)
    sizes = [int(50 * (1 / 15) ** (c / 9) + 1e-6) for c in range(10)]
    assert counts == dict(enumerate(sizes))
    assert {part for part, *_ in every} == {'train', 'test'}
    # Several classes may be positive, and items are mixed.
    part = build(root, 'CIFAR10BinaryLT', positive=['truck', 'cat'], imbalance_ratio=5)
    assert part.metainfo['classes'] == ('rest', 'cat+truck')
    labels = part.get_gt_labels()
    positives = [x for x, y in zip(contents(part), labels) if y]
    assert {label for _, label, _ in positives} == {3, 9}
    assert all(half.any() for half in np.array_split(labels, 2))


@pytest.mark.parametrize(
    ('name', 'settings', 'message'),
    [
        ('CIFAR10LT', dict(split='val'), 'at least 1 for a valid'),
        ('CIFAR10LT', dict(val_per_class=-1), 'val_per_class=-1'),
        ('CIFAR10LT', dict(val_per_class=40), 'takes 41 images of class 0'),
        ('CIFAR10LT', dict(imbalance_ratio=50), 'at most imbalance_ratio=40'),
        ('CIFAR10LT', dict(imbalance_ratio=0.5), r'must be in \[1, inf\), got 0.5'),
        ('CIFAR10LT', dict(imbalance_ratio=float('inf')), 'got inf'),
        ('CIFAR10BinaryLT', dict(positive='bat'), r"positive=\['bat'\] must"),
        ('CIFAR10BinaryLT', dict(positive=[]), 'must name some, not all'),
        (
            'CIFAR10BinaryLT',
            dict(positive='truck', imbalance_ratio=40, split='val'),
            'the val part has 0 positives',
        ),
    ],
)
def test_bad_settings_are_named(tmp_path, name, settings, message):
    root = write_arrays(tmp_path)
    with pytest.raises(ValueError, match=message):
        build(root, name, **settings)


def test_damaged_data_is_named(tmp_path, monkeypatch):
    from mmpretrain.datasets import CIFAR10

    monkeypatch.setattr(CIFAR10, '_check_integrity', lambda self: False)
    with pytest.raises(UserError, match='MD5 sum is wrong'):
        build(write_pickles(tmp_path / 'pickles'))


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


def test_the_choice_stays_what_it_is():
    """A change here changes the data of everyone's experiments."""
    members = shuffled_classes(np.array([0, 1, 0, 1, 0, 1, 0]), 0)
    assert [x.tolist() for x in members] == [[6, 4, 2, 0], [3, 5, 1]]
    assert ranked_classes(4, None).tolist() == [0, 1, 2, 3]
    assert ranked_classes(5, 3).tolist() == [0, 4, 1, 3, 2]
    with pytest.raises(ValueError, match='seed must be at least 0, got -1'):
        shuffled_classes(members[0], -1)
    with pytest.raises(ValueError, match='order_seed must be at least 0'):
        ranked_classes(5, -1)
    with pytest.raises(ValueError, match='num_classes must be at least 2, got 1'):
        exponential_sizes(1, 40, 5)


def test_parts_are_eight_to_one_to_one():
    parts = _split_sizes(np.array([1000, 100, 10, 4, 3, 2, 1]))
    assert parts.tolist() == [
        [800, 80, 8, 2, 1, 2, 1],
        [100, 10, 1, 1, 1, 0, 0],
        [100, 10, 1, 1, 1, 0, 0],
    ]
