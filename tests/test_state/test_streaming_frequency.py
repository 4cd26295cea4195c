"""Shares of entities, estimated from the steps between their batches."""

import math

import pytest
import torch

from mmrank.state import StreamingFrequency


def loops(batches, alpha, bucket):
    """Algorithm 2 with the first visit as a whole, in plain Python."""
    last, interval = {}, {}
    for t, batch in enumerate(batches, 1):
        for b in {bucket(y) for y in batch}:
            gap = t - last.get(b, 0)
            before = interval.get(b)
            interval[b] = gap if before is None else (1 - alpha) * before + alpha * gap
            last[b] = t
    return interval


def batches(steps=60, entities=9, seed=0):
    g = torch.Generator().manual_seed(seed)
    shares = torch.linspace(0.05, 0.9, entities)
    for _ in range(steps):
        drawn = (torch.rand(entities, generator=g) < shares).nonzero()[:, 0]
        yield torch.cat([drawn, drawn[:2]])  # some twice


@pytest.mark.parametrize(('buckets', 'alpha'), [(9, 0.2), (4, 0.05)])
def test_equals_the_algorithm(buckets, alpha):
    state = StreamingFrequency(buckets, alpha=alpha)
    drawn = list(batches())
    for ids in drawn:
        state.update(ids)
    want = loops([x.tolist() for x in drawn], alpha, lambda y: y % buckets)
    ids = torch.arange(9)
    expected = [-math.log(max(want[y % buckets], 1)) for y in range(9)]
    torch.testing.assert_close(state.log_share(ids), torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_mean_of_the_first_estimate_is_right():
    """Where the paper starts from a guess, this starts without a bias."""
    intervals = []
    for seed in range(400):
        g = torch.Generator().manual_seed(seed)
        state = StreamingFrequency(1, alpha=0.5)
        for step in torch.rand(40, generator=g) < 0.25:
            if step:
                state.update(torch.tensor([0]))
            else:
                state.num_updates += 1  # a batch without the entity
        intervals.append(state.interval.item())
    mean = sum(intervals) / len(intervals)
    assert mean == pytest.approx(4, abs=0.3)


def test_shares_are_found_with_fewer_buckets_than_entities():
    errors = {}
    shares = torch.linspace(0.02, 0.3, 60)
    for hashes in (1, 4):
        g = torch.Generator().manual_seed(0)
        state = StreamingFrequency(40, num_hashes=hashes, alpha=0.02)
        for _ in range(600):
            drawn = torch.rand(60, generator=g) < shares
            state.update(drawn.nonzero()[:, 0])
        found = state.log_share(torch.arange(60)).exp()
        errors[hashes] = float((found / shares).log().abs().mean())
    # The least shared bucket counts.
    assert errors[4] < 0.75 * errors[1]


def test_follows_a_share_that_changes():
    state = StreamingFrequency(2, alpha=0.2)
    for step in range(200):
        often = step < 100 or step % 10 == 0
        state.update(torch.tensor([0, 1] if often else [1]))
    share = state.log_share(torch.tensor([0, 1])).exp()
    torch.testing.assert_close(share, torch.tensor([0.1, 1.0]), rtol=0.15, atol=0)


def test_unknown_and_huge_entities():
    state = StreamingFrequency(5, num_hashes=3)
    for _ in range(9):
        state.update(torch.tensor([2]))
    share = state.log_share(torch.tensor([2, 4])).exp()
    torch.testing.assert_close(share, torch.tensor([1.0, 0.1]))
    huge = torch.tensor([2**62, 2**31 - 1, 0])
    places = state.buckets(huge)
    assert places.shape == (3, 3)
    assert ((places >= 0) & (places < 5)).all()
    state.update(huge)
    assert state.log_share(huge).isfinite().all()
    before = state.num_updates.clone()
    state.update(torch.zeros(0, dtype=torch.long))
    assert torch.equal(state.num_updates, before)
