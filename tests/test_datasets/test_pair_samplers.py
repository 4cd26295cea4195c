"""Samplers of pairs, cells, and rows with columns."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from mmrank.datasets import InteractionDataset, pair_collate
from mmrank.datasets.samplers import CrossPairSampler, InBatchPairSampler, NaivePairSampler
from mmrank.datasets.samplers import batch_stream as stream
from mmrank.registry import DATA_SAMPLERS


@pytest.fixture
def data(tmp_path):
    path = tmp_path / 'pairs.csv'
    path.write_text(''.join(f'{i % 5},{i % 4}\n' for i in range(20)))
    return lambda sampling='in_batch': InteractionDataset(path, sampling)


SAMPLERS = {
    'in_batch': (InBatchPairSampler, dict(batch_size=6)),
    'sogram': (InBatchPairSampler, dict(batch_size=6)),
    'naive': (NaivePairSampler, dict(batch_size=6, num_batches=3)),
    'cross': (CrossPairSampler, dict(num_rows=2, num_cols=3)),
}


def build(data, sampling, **other):
    sampler, setting = SAMPLERS[sampling]
    return sampler(data(sampling), **{'seed': 7, **setting, **other})


def epochs(sampler, count):
    result = []
    for epoch in range(count):
        sampler.set_epoch(epoch)
        result.append(list(sampler))
    return result


def test_in_batch_epoch_has_no_pair_twice(data):
    first, second = epochs(build(data, 'in_batch'), 2)
    for epoch in (first, second):
        assert len(epoch) == len(set(epoch)) == 18
    assert first != second
    assert len(build(data, 'in_batch')) == 18


def test_sogram_samples_are_distinct_in_themselves_only(data):
    sampler = build(data, 'sogram', batch_size=10)
    (epoch,) = epochs(sampler, 1)
    assert len(epoch) == 40
    first = epoch[:10] + epoch[20:30]
    second = epoch[10:20] + epoch[30:]
    assert sorted(first) == sorted(second) == list(range(20))
    assert set(epoch[:10]) & set(epoch[10:20])


def test_in_batch_pairs_are_uniform(data):
    sampler = build(data, 'in_batch', batch_size=2)
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


def test_naive_cells_are_uniform_and_distinct(data):
    sampler = build(data, 'naive', batch_size=18)
    seen = Counter()
    for number in range(500):
        batch = sampler.rank_batch(number).tolist()
        assert len(set(batch)) == 18
        seen.update(batch)
    assert set(seen) == set(range(20))
    # Each with probability 0.9: standard deviation 6.7 of 450.
    assert all(abs(x - 450) < 5 * 6.7 for x in seen.values())


def test_cross_batches(data):
    sampler = build(data, 'cross')
    seen = Counter()
    for number in range(500):
        batch = sampler.rank_batch(number)
        assert len(batch) == len(set(batch.tolist())) == 5
        assert (batch[:2] < 5).all()
        assert ((batch[2:] >= 5) & (batch[2:] < 9)).all()
        seen.update(batch.tolist())
    assert all(abs(seen[i] - 200) < 5 * 11 for i in range(5))
    assert all(abs(seen[i] - 375) < 5 * 9.7 for i in range(5, 9))


@pytest.mark.parametrize('sampling', SAMPLERS)
def test_resumes_anywhere(data, sampling):
    stream_of = [i for epoch in epochs(build(data, sampling), 3) for i in epoch]
    length = len(build(data, sampling))
    for done in (0, 1, length - 1, length, length + 5):
        resumed = build(data, sampling)
        resumed.skip(done)
        assert list(resumed) == stream_of[done : (done // length + 1) * length]
        resumed.set_epoch(1)
        begin = (done // length + 1) * length
        assert list(resumed) == stream_of[begin : begin + length]
        endless = build(data, sampling, infinite=True)
        endless.skip(done)
        values = iter(endless)
        ahead = [next(values) for _ in range(2 * length - done % length)]
        assert ahead == (stream_of[done:] + ahead)[: len(ahead)]


@pytest.mark.parametrize('sampling', SAMPLERS)
def test_global_random_state_is_left_alone(data, sampling):
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    epochs(build(data, sampling), 2)
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert epochs(build(data, sampling), 2) == epochs(build(data, sampling), 2)
    assert epochs(build(data, sampling), 1) != epochs(build(data, sampling, seed=8), 1)


@pytest.mark.parametrize('sampling', SAMPLERS)
def test_ranks_share_the_batches_of_one(data, sampling, monkeypatch):
    alone = build(data, sampling)
    batches = [alone.rank_batch(i) for i in range(5)]
    parts = []
    for rank in range(2):
        monkeypatch.setattr(stream, 'get_dist_info', lambda r=rank: (r, 2))
        sampler = build(data, sampling)
        parts.append([sampler.rank_batch(i) for i in range(5)])
    for whole, first, second in zip(batches, *parts, strict=True):
        assert len(first) == len(second)
        if sampling == 'cross':
            np.testing.assert_array_equal(first[1:], second[1:])
            joined = [first[0], *second]
        elif sampling == 'sogram':
            joined = [*first[:3], *second[:3], *first[3:], *second[3:]]
        else:
            joined = [*first, *second]
        np.testing.assert_array_equal(joined, whole)
    monkeypatch.setattr(stream, 'get_dist_info', lambda: (0, 4))
    with pytest.raises(ValueError, match='multiple of their number, 4'):
        build(data, sampling)


@pytest.mark.parametrize('workers', [0, 1])
def test_in_a_data_loader(data, workers):
    dataset = data()
    loader = DataLoader(
        dataset,
        batch_size=6,
        sampler=InBatchPairSampler(dataset, 6, seed=1),
        collate_fn=pair_collate,
        num_workers=workers,
    )
    batches = list(loader)
    assert [len(x['rows']) for x in batches] == [6, 6, 6]


@pytest.mark.parametrize(
    ('sampling', 'setting', 'message'),
    [
        ('in_batch', dict(batch_size=21), 'only 20 positive pairs'),
        ('in_batch', dict(batch_size=0), 'batch_size=0'),
        ('naive', dict(batch_size=21), 'only 20 pairs'),
        ('naive', dict(num_batches=0), 'num_batches must be'),
        ('cross', dict(num_rows=6), 'num_rows=6'),
        ('cross', dict(num_cols=0), 'num_cols=0'),
    ],
)
def test_bad_setting(data, sampling, setting, message):
    with pytest.raises(ValueError, match=message):
        build(data, sampling, **setting)


def test_sampler_of_another_kind(data):
    with pytest.raises(ValueError, match="sampling='naive'"):
        InBatchPairSampler(data('naive'), 2)
    with pytest.raises(TypeError, match='InteractionDataset'):
        DATA_SAMPLERS.build(dict(type='mmrank.NaivePairSampler', dataset=[1, 2], batch_size=1))
    with pytest.raises(ValueError, match='negative'):
        build(data, 'naive').skip(-1)
