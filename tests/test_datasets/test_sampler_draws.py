"""What the batches of single samplers hold: classes, positives, pairs, cells, bit for bit."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from labelled import Labels

from mmrank.datasets import InteractionDataset
from mmrank.datasets.samplers import (
    ClassPairSampler,
    InBatchPairSampler,
    PKSampler,
    PositiveRateSampler,
)


def classes_of(sizes):
    """Items of classes of these sizes, mixed."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    names = [str(i) for i in range(len(sizes))]
    return Labels(np.random.default_rng(0).permutation(labels).tolist(), names)


def binary(num_positives, num_negatives):
    return classes_of([num_negatives, num_positives])


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    num_classes=st.integers(1, 5),
    num_per_class=st.integers(2, 5),
    seed=st.integers(0, 2**31 - 1),
)
def test_batches_hold_p_classes_with_k_images(sizes, num_classes, num_per_class, seed):
    dataset = classes_of(sizes)
    usable = {c for c, n in enumerate(sizes) if n >= 2}
    arguments = dict(
        batch_size=num_classes * num_per_class,
        num_per_class=num_per_class,
        seed=seed,
        infinite=True,
    )
    if len(usable) < num_classes:
        with pytest.raises(ValueError, match=rf'only {len(usable)} have so'):
            PKSampler(dataset, **arguments)
        return
    sampler = PKSampler(dataset, **arguments)
    for rows in map(sampler.global_batch, range(5)):
        assert rows.shape == (num_classes, num_per_class)
        labels = np.array(dataset)[rows]
        assert (labels == labels[:, :1]).all()
        classes = labels[:, 0].tolist()
        assert len(set(classes)) == num_classes
        assert set(classes) <= usable
        for row, label in zip(rows.tolist(), classes):
            times = Counter(row).values()
            assert len(times) == min(num_per_class, sizes[label])
            assert max(times) - min(times) <= 1


def test_frequencies_of_classes_and_images():
    sizes = np.array([2, 4, 8, 16])
    sampler = PKSampler(classes_of(sizes), batch_size=2, num_per_class=2, seed=0)
    count = 4000
    batches = np.stack([sampler.global_batch(i)[0] for i in range(count)])
    images = np.bincount(batches.ravel(), minlength=30)
    labels = np.array(classes_of(sizes))
    classes = np.bincount(labels, weights=images) / (2 * count)
    expected = np.full(4, 0.25)
    np.testing.assert_allclose(classes, expected, atol=0.03)
    within = images / (2 * count) / expected[labels] * sizes[labels]
    np.testing.assert_allclose(within, 1, atol=0.25)


@given(
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 40)),
    counts=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    seed=st.integers(0, 2**31 - 1),
)
def test_each_batch_has_the_positives_asked_for(sizes, counts, seed):
    arguments = dict(batch_size=sum(counts), positive_rate=counts[0] / sum(counts), seed=seed)
    if sizes[0] < counts[0] or sizes[1] < counts[1]:
        with pytest.raises(ValueError, match='but the data set has only'):
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
        labels = [dataset[i] for i in batch]
        assert sum(labels) == counts[0]
        seen.update(i for i in batch if dataset[i])
    # One round deals out each positive at most once.
    assert set(seen.values()) == {1}
    assert len(seen) == rounds * counts[0]


def test_all_images_come_in_turn():
    sampler = PositiveRateSampler(binary(10, 20), 6, 3 / 6, seed=0)
    rounds = np.stack([sampler.global_batch(i)[:3] for i in range(60)]).reshape(20, 9)
    assert all(len(set(positives)) == 9 for positives in rounds.tolist())
    # The one that is left out is not always the same.
    assert len({tuple(sorted(positives)) for positives in rounds.tolist()}) > 4


def test_rate_is_a_share_of_the_batch():
    for rate, expected in ((0.5, 6), (0.05, 1), (0.13, 2)):
        assert PositiveRateSampler(binary(20, 20), 12, rate).num_positives == expected


def test_which_class_is_positive():
    labels = [0, 1, 0, 0, 1, 0, 0, 0]
    dataset = Labels(labels, 'ab')
    sampler = PositiveRateSampler(dataset, 4, 1 / 4, seed=0)
    assert labels[sampler.global_batch(0)[0]] == 1
    # One class alone, as multi-label data sets have it.
    single = Labels([[], [0], [], []], ['bird'])
    sampler = PositiveRateSampler(single, 3, 1 / 3, seed=0)
    assert sampler.global_batch(0)[0] == 1


@pytest.fixture
def data(tmp_path):
    path = tmp_path / 'pairs.csv'
    path.write_text(''.join(f'{i % 5},{i % 4}\n' for i in range(20)))
    return lambda sampling='in_batch': InteractionDataset(path, sampling)


def test_sogram_samples_are_distinct_in_themselves_only(data):
    epoch = list(InBatchPairSampler(data('sogram'), batch_size=10, seed=7))
    assert len(epoch) == 40
    first = epoch[:10] + epoch[20:30]
    second = epoch[10:20] + epoch[30:]
    assert sorted(first) == sorted(second) == list(range(20))
    assert set(epoch[:10]) & set(epoch[10:20])


def test_in_batch_pairs_are_uniform(data):
    sampler = InBatchPairSampler(data(), batch_size=2, seed=7)
    seen = Counter()
    for number in range(4000):
        # The first batch of each epoch.
        batch = sampler.rank_batch(number * sampler.num_batches)
        seen[tuple(sorted(batch.tolist()))] += 1
    expected = 4000 / 190
    assert len(seen) == 190
    chi_square = sum((x - expected) ** 2 for x in seen.values()) / expected
    # 189 degrees of freedom: mean 189, standard deviation 19.4.
    assert chi_square < 189 + 5 * 19.4


def test_pairs_of_a_class_are_uniform_and_distinct():
    labels = [0, 0, 0, 1, 1, 2]
    sampler = ClassPairSampler(Labels(labels), batch_size=6, seed=7)
    seen = Counter()
    for number in range(400):
        left, right = np.split(sampler.rank_batch(number), 2)
        batch = set(zip(left.tolist(), right.tolist()))
        assert len(batch) == 6
        seen.update(batch)
    assert {(i, j) for i, j in seen} == {
        (i, j) for i in range(6) for j in range(6) if i != j and labels[i] == labels[j]
    }
    # Each with probability 0.75: standard deviation 8.7 of 300.
    assert all(abs(count - 300) < 5 * 8.7 for count in seen.values())


def test_uniform_candidates_follow_the_pairs(data):
    dataset, seen = data(), Counter()
    sampler = InBatchPairSampler(dataset, batch_size=6, num_uniform=2, seed=7)
    for number in range(500):
        batch = dataset.__getitems__(sampler.rank_batch(number))
        assert (len(batch['rows']), len(batch['cols']), len(batch['right_index'])) == (6, 8, 8)
        assert torch.equal(batch['right']['ids'][batch['right_index']], batch['cols'])
        drawn = batch['cols'][6:].tolist()
        assert len(set(drawn)) == 2
        seen.update(drawn)
    assert all(abs(seen[j] - 250) < 5 * 11.2 for j in range(4))
