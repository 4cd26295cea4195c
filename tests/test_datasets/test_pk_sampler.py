"""PKSampler: composition of batches, ranks, epochs and resume."""

import random
from collections import Counter
from itertools import chain, islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mmengine.dataset import BaseDataset, ConcatDataset, RepeatDataset
from mmengine.registry import DATA_SAMPLERS
from torch.utils.data import DataLoader, Dataset

from mmrank.datasets.samplers import pk_sampler
from mmrank.datasets.samplers.class_labels import class_labels
from mmrank.datasets.samplers.pk_sampler import PKSampler


class Labelled(Dataset):
    """Nothing but labels, in an order that mixes the classes."""

    def __init__(self, sizes, shuffle=True):
        labels = np.repeat(np.arange(len(sizes)), sizes)
        if shuffle:
            labels = np.random.default_rng(0).permutation(labels)
        self.labels = labels

    def get_gt_labels(self):
        return self.labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return index


def on_rank(monkeypatch, rank, world_size):
    monkeypatch.setattr(pk_sampler, 'get_dist_info', lambda: (rank, world_size))


def take_batches(sampler, count):
    share = sampler.batch_size // sampler.world_size
    indices = list(islice(iter(sampler), count * share))
    return [indices[i * share : (i + 1) * share] for i in range(count)]


def test_it_is_registered():
    sampler = DATA_SAMPLERS.build(
        dict(
            type='mmrank.PKSampler',
            dataset=Labelled([4, 4, 4]),
            batch_size=4,
            num_per_class=2,
            seed=0,
        )
    )
    assert isinstance(sampler, PKSampler)


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    num_classes=st.integers(1, 5),
    num_per_class=st.integers(2, 5),
    seed=st.integers(0, 2**31 - 1),
    small_classes=st.sampled_from(['repeat', 'skip']),
    class_weights=st.sampled_from(['uniform', 'size']),
)
def test_batches_hold_p_classes_with_k_images(
    sizes, num_classes, num_per_class, seed, small_classes, class_weights
):
    dataset = Labelled(sizes)
    least = num_per_class if small_classes == 'skip' else 2
    usable = {c for c, n in enumerate(sizes) if n >= least}
    arguments = dict(
        batch_size=num_classes * num_per_class,
        num_per_class=num_per_class,
        seed=seed,
        small_classes=small_classes,
        class_weights=class_weights,
        infinite=True,
    )
    if len(usable) < num_classes:
        with pytest.raises(ValueError, match=rf'only {len(usable)} have so'):
            PKSampler(dataset, **arguments)
        return
    for batch in take_batches(PKSampler(dataset, **arguments), 5):
        rows = np.array(batch).reshape(num_classes, num_per_class)
        labels = dataset.labels[rows]
        assert (labels == labels[:, :1]).all()
        classes = labels[:, 0].tolist()
        assert len(set(classes)) == num_classes
        assert set(classes) <= usable
        for row, label in zip(rows.tolist(), classes):
            times = Counter(row).values()
            assert len(times) == min(num_per_class, sizes[label])
            assert max(times) - min(times) <= 1


@pytest.mark.parametrize('world_size', [1, 2, 4])
def test_ranks_share_out_the_same_batches(monkeypatch, world_size):
    dataset = Labelled([5, 8, 3, 9, 4, 6, 7, 2, 5, 30])
    arguments = dict(batch_size=24, num_per_class=3, seed=5, infinite=True)
    whole = take_batches(PKSampler(dataset, **arguments), 6)
    parts = []
    for rank in range(world_size):
        on_rank(monkeypatch, rank, world_size)
        parts.append(take_batches(PKSampler(dataset, **arguments), 6))
    for number, batch in enumerate(whole):
        shares = [part[number] for part in parts]
        assert list(chain(*shares)) == batch
        owned = [set(dataset.labels[share].tolist()) for share in shares]
        assert sum(map(len, owned)) == len(set.union(*owned)) == 8


@pytest.mark.parametrize('skipped', [0, 1, 7, 12, 31, 60])
@pytest.mark.parametrize(('rank', 'world_size'), [(0, 1), (1, 2)])
def test_skip_leads_to_the_same_continuation(monkeypatch, skipped, rank, world_size):
    on_rank(monkeypatch, rank, world_size)
    arguments = dict(batch_size=12, num_per_class=3, seed=1)
    dataset = Labelled([5] * 9)
    endless = PKSampler(dataset, infinite=True, **arguments)
    whole = list(islice(iter(endless), 200))
    endless.skip(skipped)
    assert list(islice(iter(endless), 100)) == whole[skipped : skipped + 100]

    # mmengine counts the epochs of an iteration-based loop from the resume.
    epochs = PKSampler(dataset, num_batches=2, **arguments)
    epochs.skip(skipped)
    seen = list(epochs)
    assert (skipped + len(seen)) % len(epochs) == 0
    assert 0 < len(seen) <= len(epochs)
    epochs.set_epoch(1)
    seen += list(epochs)
    epochs.set_epoch(2)
    seen += list(epochs)
    assert seen == whole[skipped : skipped + len(seen)]
    with pytest.raises(ValueError, match='negative'):
        epochs.skip(-1)


def test_epochs_are_pieces_of_the_stream():
    dataset = Labelled([5, 5, 5, 5, 5])
    arguments = dict(batch_size=6, num_per_class=3, seed=3)
    sampler = PKSampler(dataset, **arguments)
    assert len(sampler) == 24  # 25 images fill 4 batches
    epochs = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        epochs += list(sampler)
        assert list(sampler) == epochs[-24:]
    endless = PKSampler(dataset, infinite=True, **arguments)
    assert epochs == list(islice(iter(endless), 72))
    assert epochs[:24] != epochs[24:48]


def test_length_serves_the_data_loader(monkeypatch):
    on_rank(monkeypatch, 1, 2)
    sampler = PKSampler(Labelled([5] * 9), batch_size=12, num_per_class=3)
    for drop_last in (False, True):
        loader = DataLoader(
            sampler.global_batch(0).ravel(), batch_size=6, sampler=sampler, drop_last=drop_last
        )
        assert len(loader) == sampler.num_batches == 3


def test_workers_do_not_change_the_batches():
    dataset = Labelled([6] * 8)

    def batches(num_workers):
        loader = DataLoader(
            dataset,
            batch_size=8,
            sampler=PKSampler(dataset, batch_size=8, seed=2),
            num_workers=num_workers,
        )
        return [batch.tolist() for batch in loader]

    assert batches(0) == batches(2)


def test_the_stream_stays_what_it_is():
    """A change here breaks the resume of runs from before it."""
    sampler = PKSampler(
        Labelled([3, 1, 5, 4, 2], shuffle=False), batch_size=9, num_per_class=3, seed=0
    )
    assert sampler.global_batch(0).tolist() == GOLDEN_UNIFORM
    sampler = PKSampler(
        Labelled([3, 1, 5, 4, 2], shuffle=False),
        batch_size=9,
        num_per_class=3,
        seed=0,
        class_weights='size',
    )
    assert sampler.global_batch(7).tolist() == GOLDEN_SIZE


GOLDEN_UNIFORM = [[14, 13, 14], [6, 8, 5], [10, 12, 9]]
GOLDEN_SIZE = [[14, 13, 14], [2, 1, 0], [6, 8, 4]]


@pytest.mark.parametrize('class_weights', ['uniform', 'size'])
def test_frequencies_of_classes_and_images(class_weights):
    sizes = np.array([2, 4, 8, 16])
    sampler = PKSampler(
        Labelled(sizes), batch_size=2, num_per_class=2, seed=0, class_weights=class_weights
    )
    count = 4000
    batches = np.stack([sampler.global_batch(i)[0] for i in range(count)])
    images = np.bincount(batches.ravel(), minlength=30)
    labels = class_labels(Labelled(sizes))
    classes = np.bincount(labels, weights=images) / (2 * count)
    expected = sizes / 30 if class_weights == 'size' else np.full(4, 0.25)
    np.testing.assert_allclose(classes, expected, atol=0.03)
    within = images / (2 * count) / expected[labels] * sizes[labels]
    np.testing.assert_allclose(within, 1, atol=0.25)


def test_global_generators_are_left_alone():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    before = random.getstate(), np.random.get_state()[1].tolist()
    torch_before = torch.get_rng_state()
    take_batches(PKSampler(Labelled([5] * 5), 8, 4, seed=0), 2)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    assert torch.equal(torch.get_rng_state(), torch_before)


def test_seed_decides():
    def first(seed):
        return PKSampler(Labelled([5] * 9), 8, 4, seed=seed).global_batch(0)

    assert (first(1) == first(1)).all()
    assert (first(1) != first(2)).any()


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (dict(batch_size=10), 'positive multiple of num_per_class=4'),
        (dict(batch_size=0), 'positive multiple'),
        (dict(batch_size=8, num_per_class=1), 'at least 2, got 1'),
        (dict(batch_size=8, small_classes='drop'), "'repeat', 'skip'"),
        (dict(batch_size=8, class_weights='x'), 'class_weights must be one'),
        (dict(batch_size=8, num_batches=0), 'num_batches must be at least 1'),
        (dict(batch_size=40), 'needs 10 classes of at least 2 images'),
        (dict(batch_size=12, num_per_class=6, small_classes='skip'), "small_classes='repeat'"),
    ],
)
def test_bad_settings_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        PKSampler(Labelled([5] * 5), seed=0, **arguments)


def test_classes_must_be_dealt_out_evenly(monkeypatch):
    on_rank(monkeypatch, 0, 3)
    with pytest.raises(ValueError, match='multiple of 12'):
        PKSampler(Labelled([5] * 9), batch_size=32, seed=0)


class ByCategory(BaseDataset):
    """Knows the classes of one item at a time, as mmengine's sets do."""

    def load_data_list(self):
        return [{'category': label} for label in self.metainfo['labels']]

    def get_cat_ids(self, index):
        return [self.get_data_info(index)['category']]


class AllAtOnce(ByCategory):
    """Knows the classes of all items, as mmpretrain's sets do."""

    def get_gt_labels(self):
        return np.array(self.metainfo['labels'])


def test_labels_are_found_through_wrappers():
    parts = [ByCategory(metainfo={'labels': [3, 1]}), AllAtOnce(metainfo={'labels': [0, 0, 2]})]
    both = ConcatDataset(parts, ignore_keys=['labels'])
    twice = RepeatDataset(parts[1], times=2)
    for dataset, expected in ((both, [3, 1, 0, 0, 2]), (twice, [0, 0, 2] * 2)):
        assert class_labels(dataset).tolist() == expected
        for index, label in enumerate(expected):
            assert dataset.get_data_info(index)['category'] == label


def test_unknown_labels_are_refused():
    with pytest.raises(TypeError, match='neither get_gt_labels'):
        class_labels([1, 2, 3])
    several = ByCategory(metainfo={'labels': [0, 0]})
    several.get_cat_ids = lambda index: [0, 1]
    with pytest.raises(ValueError, match='exactly one is needed'):
        class_labels(several)
    short = Labelled([2, 2])
    short.get_gt_labels = lambda: np.zeros(3)
    with pytest.raises(ValueError, match='one class for each of the 4'):
        class_labels(short)
