"""ShardSampler: each sample once, shards from front to back, resume."""

from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest

from mmrank.datasets.samplers import ShardSampler, batch_stream

SIZES = [40, 7, 25, 1, 31, 16]  # 120


def dataset(sizes=SIZES):
    return SimpleNamespace(shard_sizes=np.array(sizes))


def on_rank(monkeypatch, rank, world_size):
    monkeypatch.setattr(batch_stream, 'get_dist_info', lambda: (rank, world_size))


def batches(sampler, count):
    """(count, share) indices."""
    found = list(islice(iter(sampler), count * sampler.share))
    return np.array(found).reshape(count, -1)


@pytest.mark.parametrize(
    ('world_size', 'workers', 'readers', 'buffer'),
    [(1, 1, 1, 1), (1, 1, 3, 10), (2, 1, 2, 500), (2, 3, 2, 4), (1, 5, 8, 7)],
)
def test_an_epoch_has_each_sample_once(monkeypatch, world_size, workers, readers, buffer):
    seen = []
    for rank in range(world_size):
        on_rank(monkeypatch, rank, world_size)
        sampler = ShardSampler(
            dataset(), batch_size=4, workers=workers, readers=readers, buffer=buffer, seed=1
        )
        assert sampler.num_batches == 30
        epochs = []
        for epoch in range(2):
            sampler.set_epoch(epoch)
            epochs.append(list(sampler))
        seen.append(epochs)
    for epoch in range(2):
        joined = [index for epochs in seen for index in epochs[epoch]]
        assert sorted(joined) == list(range(120))
    assert seen[0][0] != seen[0][1]


def test_what_is_left_over_changes():
    sampler = ShardSampler(dataset([50]), batch_size=8, seed=0)
    left = []
    for epoch in range(20):
        sampler.set_epoch(epoch)
        seen = list(sampler)
        assert len(seen) == len(set(seen)) == 48
        left += set(range(50)) - set(seen)
    assert len(set(left)) > 15


@pytest.mark.parametrize('workers', [1, 2])
def test_a_lane_reads_its_shards_from_front_to_back(monkeypatch, workers):
    """Counted by brute force: where a reader cannot just read on."""
    sizes, readers, buffer = [60] * 8, 2, 12
    owner = np.repeat(np.arange(8), 60)
    row = np.tile(np.arange(60), 8)
    for rank in range(2):
        on_rank(monkeypatch, rank, 2)
        sampler = ShardSampler(
            dataset(sizes), batch_size=4, readers=readers, buffer=buffer, workers=workers, seed=2
        )
        drawn = batches(sampler, sampler.num_batches)
        for worker in range(workers):
            # Torch gives every `workers`-th batch to a worker.
            lane = drawn[worker::workers].ravel()
            ends, jumps = set(), 0
            for begin in range(0, len(lane), buffer):
                window = lane[begin : begin + buffer]
                for shard in set(owner[window]):
                    rows = np.sort(row[window[owner[window] == shard]])
                    runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
                    for run in runs:
                        # A run goes on with a shard, or opens one.
                        jumps += run[0] > 0 and (shard, run[0]) not in ends
                        ends.add((shard, run[-1] + 1))
            # Only where a stretch begins, in the middle of a shard.
            assert jumps <= readers
            distances = np.diff(lane)
            assert (distances != 1).mean() > 0.5, 'hardly shuffled'


def test_parts_are_a_multiple_of_the_ranks(monkeypatch):
    on_rank(monkeypatch, 0, 2)
    with pytest.raises(ValueError, match='parts=1 must be a multiple'):
        ShardSampler(dataset(), 4, parts=1)
