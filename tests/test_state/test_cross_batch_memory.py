"""The ring, its marks and its way through checkpoints."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmrank.state import CrossBatchMemory


def _rows(begin, count, dim=3):
    ids = torch.arange(begin, begin + count)
    return ids[:, None].float().expand(count, dim), ids % 5, ids


@given(st.integers(1, 9), st.lists(st.integers(0, 12), max_size=8), st.data())
def test_holds_the_last_entries(size, batches, data):
    memory, seen = CrossBatchMemory(size, 3), []
    for count in batches:
        memory.enqueue(*_rows(len(seen), count))
        seen += range(len(seen), len(seen) + count)
    parts = data.draw(st.integers(1, 4))
    shares = [memory.entries(r, parts) for r in range(parts)]
    ids = torch.cat([x.sample_ids[x.usable] for x in shares])
    assert sorted(ids.tolist()) == seen[-size:]
    for share in shares:
        ids = share.sample_ids[share.usable]
        assert torch.equal(share.labels[share.usable], ids % 5)
        rows = share.embeddings[share.usable]
        assert torch.equal(rows, ids[:, None].float().expand(-1, 3))


def test_warms_up():
    memory = CrossBatchMemory(8, 3, start_iter=2)
    usable = []
    for i in range(4):
        usable.append(int(memory.entries().usable.sum()))
        memory.enqueue(*_rows(2 * i, 2))
    assert usable == [0, 0, 4, 6]


def test_resumes_in_the_middle_of_the_ring():
    whole, first = CrossBatchMemory(5, 3), CrossBatchMemory(5, 3)
    for memory in (whole, first):
        memory.enqueue(*_rows(0, 4))
        memory.enqueue(*_rows(4, 3))
    resumed = CrossBatchMemory(5, 3)
    resumed.load_state_dict(copy.deepcopy(first.state_dict()))
    for memory in (whole, resumed):
        memory.enqueue(*_rows(7, 3))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name])


def test_an_entry_that_is_not_finite_is_left_out():
    memory = CrossBatchMemory(4, 3)
    rows, labels, ids = _rows(0, 4)
    rows = rows.clone()
    rows[1, 0], rows[2, 2] = torch.nan, torch.inf
    memory.enqueue(rows, labels, ids)
    entries = memory.entries()
    assert entries.usable.tolist() == [True, False, False, True]
    assert entries.embeddings.isfinite().all()


def test_keeps_no_gradient_and_no_view():
    memory = CrossBatchMemory(4, 3)
    x = torch.ones(4, 3, requires_grad=True)
    memory.enqueue(x, *_rows(0, 4)[1:])
    entries = memory.entries()
    assert not entries.embeddings.requires_grad
    memory.enqueue(x * 2, *_rows(0, 4)[1:])
    assert (entries.embeddings == 1).all()


def test_does_not_enqueue_in_evaluation_or_when_recomputed():
    from torch.utils.checkpoint import checkpoint

    memory = CrossBatchMemory(8, 3)
    memory.eval()
    memory.enqueue(*_rows(0, 2))
    assert memory.num_batches == 0
    memory.train()
    x = torch.ones(2, 3, requires_grad=True)

    def step(x):
        memory.enqueue(x, *_rows(0, 2)[1:])
        return x.sum()

    checkpoint(step, x, use_reentrant=False).backward()
    assert memory.num_batches == 1


def test_half_does_not_round_the_state():
    memory = CrossBatchMemory(2, 1)
    big = torch.tensor([2**40 + 1, 3])
    memory.enqueue(torch.tensor([[0.1], [0.2]]), torch.tensor([1, 0]), big)
    memory.half()
    assert memory.embeddings.tolist() == torch.tensor([[0.1], [0.2]]).tolist()
    assert torch.equal(memory.entries().sample_ids, big)


def test_averaging_of_buffers_over_ranks_changes_nothing():
    """What SyncBuffersHook does: a sum, and a division by the world size."""
    memory = CrossBatchMemory(2, 1)
    ids = torch.tensor([2**24 + 1, 2**31 + 7])
    memory.enqueue(torch.tensor([[0.1], [0.7]]), torch.tensor([1, 0]), ids)
    before = copy.deepcopy(memory.state_dict())
    for buffer in memory.buffers():
        buffer.copy_(torch.true_divide(buffer * 3, 3))
    for name, value in memory.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize(
    ('kwargs', 'word'),
    [(dict(size=0), 'size'), (dict(dim=2.0), 'dim'), (dict(start_iter=-1), 'start_iter')],
)
def test_refuses(kwargs, word):
    with pytest.raises(ValueError, match=word):
        CrossBatchMemory(**{'size': 2, 'dim': 2, **kwargs})


def test_refuses_embeddings_of_another_length():
    with pytest.raises(ValueError, match='length 3.*set dim'):
        CrossBatchMemory(2, 3).enqueue(torch.ones(2, 4), torch.zeros(2), torch.zeros(2))
