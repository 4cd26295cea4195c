"""CIFAR-LT and its binary form from published files, arrays and folders."""

from collections import Counter

import numpy as np
import pytest
from cifar_trees import CIFAR10_NAMES, decode, every_image, write_arrays, write_pickles
from mmengine.registry import DATASETS

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
    return DATASETS.build(dict(type=f'mmrank.{name}', data_root=str(root), **settings))


def contents(dataset):
    """What the images say."""
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
    ('change', 'message'),
    [
        (dict(labels=np.arange(10)), r'labels \(10,\)'),
        (dict(labels=np.full(400, 10)), 'integers from 0 to 9'),
        (dict(labels=np.zeros(400)), r'labels \(400,\) float64'),
        (dict(images=np.zeros((400, 8, 8, 3))), 'float64'),
        (dict(classes=np.array(['a', 'b'])), r"the classes \['a', 'b'\]"),
    ],
)
def test_damaged_arrays_are_named(tmp_path, change, message):
    root = write_arrays(tmp_path)
    with np.load(root / 'train.npz') as file:
        content = {**file, **change}
    np.savez(root / 'train.npz', **content)
    with pytest.raises(UserError, match=message):
        build(root)
