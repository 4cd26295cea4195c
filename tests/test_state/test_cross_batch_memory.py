"""The ring, its marks and its way through checkpoints."""

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


def test_an_entry_that_is_not_finite_is_left_out():
    memory = CrossBatchMemory(4, 3)
    rows, labels, ids = _rows(0, 4)
    rows = rows.clone()
    rows[1, 0], rows[2, 2] = torch.nan, torch.inf
    memory.enqueue(rows, labels, ids)
    entries = memory.entries()
    assert entries.usable.tolist() == [True, False, False, True]
    assert entries.embeddings.isfinite().all()
