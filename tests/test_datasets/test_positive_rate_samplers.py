"""Samplers with a fixed number of positives: batches, ranks, resuming."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mmengine.registry import DATA_SAMPLERS
from torch.utils.data import DataLoader, Dataset

from mmrank.datasets.samplers import (
    MultiLabelPositiveSampler,
    PositiveRateSampler,
    batch_stream,
    multi_label_positive_sampler,
    positive_rate_sampler,
)
from mmrank.datasets.samplers.shuffled_cycle import ShuffledCycle


class Labelled(Dataset):
    """Labels alone: an index, or a list of them, for each item."""

    def __init__(self, labels, classes=('rest', 'bird')):
        self.labels, self.metainfo = labels, dict(classes=classes)

    def __len__(self):
        return len(self.labels)

    def get_data_info(self, index):
        """As mmpretrain's data sets."""
        return dict(gt_label=self.labels[index])

    def __getitem__(self, index):
        return index


def binary(num_positives, num_negatives):
    labels = [1] * num_positives + [0] * num_negatives
    mixed = np.random.default_rng(0).permutation(labels)
    return Labelled(mixed.tolist())


def on_rank(monkeypatch, rank, world_size):
    monkeypatch.setattr(batch_stream, 'get_dist_info', lambda: (rank, world_size))
    for module in (positive_rate_sampler, multi_label_positive_sampler):
        monkeypatch.setattr(module, 'get_world_size', lambda: world_size)


def multi_label():
    """60 items of 3 classes, a rare, a middle and a common one."""
    rng = np.random.default_rng(1)
    has = rng.random((60, 3)) < [0.1, 0.3, 0.5]
    labels = [np.flatnonzero(row).tolist() for row in has]
    return Labelled(labels, ('rare', 'middle', 'common')), has


BUILDERS = {
    'rate': lambda **k: PositiveRateSampler(
        binary(13, 50), **{**dict(batch_size=12, num_positives=5), **k}
    ),
    'multi_label': lambda **k: MultiLabelPositiveSampler(
        multi_label()[0], **{**dict(batch_size=12, num_positives=2), **k}
    ),
}


@given(
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 40)),
    counts=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    seed=st.integers(0, 2**31 - 1),
)
def test_each_batch_has_the_positives_asked_for(sizes, counts, seed):
    arguments = dict(batch_size=sum(counts), num_positives=counts[0], seed=seed)
    if sizes[0] < counts[0] or sizes[1] < counts[1]:
        with pytest.raises(ValueError, match='the data set has only'):
            PositiveRateSampler(binary(*sizes), **arguments)
        return
    dataset = binary(*sizes)
    sampler = PositiveRateSampler(dataset, infinite=True, **arguments)
    stream = iter(sampler)
    seen = Counter()
    rounds = sizes[0] // counts[0]
    for _ in range(rounds):
        batch = list(islice(stream, sum(counts)))
        assert len(set(batch)) == len(batch)
        labels = [dataset.labels[i] for i in batch]
        assert sum(labels) == counts[0]
        seen.update(i for i in batch if dataset.labels[i])
    # One round deals out each positive at most once.
    assert set(seen.values()) == {1}
    assert len(seen) == rounds * counts[0]


def test_all_images_come_in_turn():
    cycle = ShuffledCycle(np.arange(10, 20), 3, lambda i: np.random.default_rng(i))
    first = np.concatenate([cycle.take(i) for i in range(3)])
    assert len(set(first.tolist())) == 9
    # The one that is left out is not always the same.
    left = {
        (set(range(10, 20)) - set(np.concatenate(parts).tolist())).pop()
        for parts in ([cycle.take(3 * r + i) for i in range(3)] for r in range(20))
    }
    assert len(left) > 4
    assert (cycle.take(1) == first[3:6]).all()
    assert len(ShuffledCycle(np.arange(3), 0, None).take(5)) == 0
    with pytest.raises(ValueError, match='4 of only 3'):
        ShuffledCycle(np.arange(3), 4, None)


@pytest.mark.parametrize('num_positives', [1, 3, [1, 2, 4]])
def test_each_class_has_its_positives(num_positives):
    dataset, has = multi_label()
    sampler = MultiLabelPositiveSampler(dataset, batch_size=15, num_positives=num_positives, seed=0)
    wanted = np.broadcast_to(num_positives, 3)
    totals = np.zeros(3)
    count = 60
    for number in range(count):
        batch = sampler.global_batch(number)
        assert len(set(batch.tolist())) == 15
        found = has[batch].sum(0)
        assert (found >= wanted).all()
        totals += found
    # The rarest class gets what it asks for, but for company of others.
    assert totals[0] / count < wanted[0] + 1
    # More than a random batch would have, and the rest has no class.
    assert totals[0] > count * min(wanted[0], 15 * has[:, 0].mean() - 0.5)
    blank = ~has[sampler.global_batch(0)].any(1)
    assert blank.sum() >= 15 - wanted.sum()


def test_images_of_every_class_are_reached():
    dataset, _ = multi_label()
    sampler = MultiLabelPositiveSampler(dataset, batch_size=12, num_positives=2, seed=0)
    seen = np.concatenate([sampler.global_batch(i) for i in range(200)])
    assert len(set(seen.tolist())) == len(dataset)


def test_others_fill_up_where_every_image_has_a_class():
    dataset = Labelled([[0]] * 3 + [[1]] * 9, ('a', 'b'))
    sampler = MultiLabelPositiveSampler(dataset, 8, 1, seed=0)
    batches = [sampler.global_batch(i) for i in range(20)]
    assert all(len(set(b.tolist())) == 8 for b in batches)
    assert all({0, 1} == {dataset.labels[i][0] for i in b} for b in batches)


@pytest.mark.parametrize('name', BUILDERS)
@pytest.mark.parametrize('world_size', [1, 2, 4])
def test_ranks_share_out_the_same_batches(monkeypatch, name, world_size):
    whole = [BUILDERS[name](seed=3).global_batch(i) for i in range(6)]
    shares = []
    for rank in range(world_size):
        on_rank(monkeypatch, rank, world_size)
        sampler = BUILDERS[name](seed=3, infinite=True)
        size = 12 // world_size
        own = list(islice(iter(sampler), 6 * size))
        shares.append(np.reshape(own, (6, size)))
    for number, batch in enumerate(whole):
        parts = [share[number] for share in shares]
        assert sorted(np.concatenate(parts)) == sorted(batch)
        if name == 'rate':
            labels = binary(13, 50).labels
            positives = [sum(labels[i] for i in part) for part in parts]
            assert sum(positives) == 5
            assert max(positives) - min(positives) <= 1


@pytest.mark.parametrize('name', BUILDERS)
@pytest.mark.parametrize('skipped', [0, 1, 7, 12, 31, 60])
@pytest.mark.parametrize(('rank', 'world_size'), [(0, 1), (1, 2)])
def test_skip_leads_to_the_same_continuation(monkeypatch, name, skipped, rank, world_size):
    on_rank(monkeypatch, rank, world_size)
    endless = BUILDERS[name](seed=1, infinite=True)
    whole = list(islice(iter(endless), 200))
    fresh = BUILDERS[name](seed=1, infinite=True)
    fresh.skip(skipped)
    assert list(islice(iter(fresh), 100)) == whole[skipped : skipped + 100]

    epochs = BUILDERS[name](seed=1, num_batches=2)
    epochs.skip(skipped)
    seen = list(epochs)
    assert (skipped + len(seen)) % len(epochs) == 0
    epochs.set_epoch(1)
    seen += list(epochs)
    assert seen == whole[skipped : skipped + len(seen)]


@pytest.mark.parametrize('name', BUILDERS)
def test_seed_length_and_workers(name):
    def first(seed):
        return BUILDERS[name](seed=seed).global_batch(0).tolist()

    assert first(1) == first(1)
    assert first(1) != first(2)
    sampler = BUILDERS[name](seed=0)
    size = 63 if name == 'rate' else 60
    assert len(sampler) == size // 12 * 12
    state = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    dataset = list(range(size))
    batches = [
        [
            batch.tolist()
            for batch in DataLoader(
                dataset,
                batch_size=12,
                sampler=BUILDERS[name](seed=0),
                num_workers=workers,
                generator=torch.Generator(),
            )
        ]
        for workers in (0, 1)
    ]
    assert batches[0] == batches[1]
    assert len(batches[0]) == size // 12
    after = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert after == state


def test_rate_is_a_share_of_the_batch():
    for rate, expected in ((0.5, 6), (0.05, 1), (0.13, 2)):
        sampler = DATA_SAMPLERS.build(
            dict(
                type='mmrank.PositiveRateSampler',
                dataset=binary(20, 20),
                batch_size=12,
                positive_rate=rate,
            )
        )
        assert sampler.num_positives == expected


def test_which_class_is_positive():
    labels = [0, 1, 2, 2, 1, 0, 0, 0]
    dataset = Labelled(labels, 'abc')
    sampler = PositiveRateSampler(dataset, 4, num_positives=1, positive_class=2, seed=0)
    assert labels[sampler.global_batch(0)[0]] == 2
    with pytest.raises(ValueError, match='has 3 classes; set positive_class'):
        PositiveRateSampler(dataset, 4, num_positives=1, seed=0)
    # One class alone, as multi-label data sets have it.
    single = Labelled([[], [0], [], []], ['bird'])
    sampler = PositiveRateSampler(single, 3, num_positives=1, seed=0)
    assert sampler.global_batch(0)[0] == 1


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(), 'either num_positives or positive_rate'),
        (dict(num_positives=2, positive_rate=0.1), 'set either'),
        (dict(num_positives=0), 'make 0 positives in a batch of b'),
        (dict(num_positives=12), 'make 12 positives'),
        (dict(positive_rate=0.01), 'positive_rate=0.01 make 0 positives'),
        (dict(num_positives=8), 'takes 8 positives of class 1, .* only 5'),
        (dict(num_positives=1), 'takes 11 negatives .* only 10.*or more pos'),
        (dict(num_positives=4, num_batches=0), 'num_batches must be at least'),
    ],
)
def test_bad_rates_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        PositiveRateSampler(binary(5, 10), 12, seed=0, **settings)


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ((100, 1), 'batch_size=100, but the data set has only 60'),
        ((12, 5), '15 images unless an image has'),
        ((12, 0), 'at least one'),
        ((12, [1, 2]), 'one for each of the 3 classes'),
        ((12, [1, 2, -1]), 'at least 0'),
        ((60, [40, 1, 1]), 'takes 40 positives of rare, .* only'),
    ],
)
def test_bad_numbers_of_classes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        MultiLabelPositiveSampler(multi_label()[0], *arguments, seed=0)


def test_ranks_must_share_evenly(monkeypatch):
    on_rank(monkeypatch, 0, 5)
    for build in BUILDERS.values():
        with pytest.raises(ValueError, match='multiple of their number, 5'):
            build(seed=0)


def test_the_streams_stay_what_they_are():
    """A change here breaks the resume of runs from before it."""
    rate = PositiveRateSampler(Labelled([1] * 4 + [0] * 8), 6, num_positives=2, seed=0)
    assert rate.global_batch(3).tolist() == GOLDEN_RATE
    several = MultiLabelPositiveSampler(
        Labelled([[0], [0, 1], [1], [1], [], [], []], 'ab'), 4, 1, seed=0
    )
    assert several.global_batch(3).tolist() == GOLDEN_SEVERAL


GOLDEN_RATE = [0, 2, 10, 4, 7, 9]
GOLDEN_SEVERAL = [1, 6, 5, 4]
