"""Class priors, counts of pairs, and the memory of earlier batches."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmrank.state import ClassPrior, CrossBatchMemory, LabelCounts, PairCounts

ROWS = torch.tensor([2, 0, 2])


def test_given_priors():
    assert ClassPrior(0.3).of(5, ROWS).tolist() == [0.3]
    prior = ClassPrior([0.1, 0.2, 0.3], 3)
    assert prior.of(3, ROWS).tolist() == [0.3, 0.1, 0.3]
    assert prior.of(3, None).tolist() == [0.1, 0.2, 0.3]


def test_counts_and_the_scale_of_the_authors():
    prior = ClassPrior('counts', 4)
    with pytest.raises(RuntimeError, match='Fix: loss.set_class_counts'):
        prior.of(4, None)
    prior.set_counts([1, 3, 0, 4])
    assert prior.of(4, None).tolist() == [0.125, 0.375, 0.5, 0.5]
    prior = ClassPrior('counts', 3, maximum=0.1)
    prior.set_counts(torch.tensor([5, 10, 20]))
    torch.testing.assert_close(prior.of(3, None), torch.tensor([0.025, 0.05, 0.1]).double())
    given = ClassPrior([0.2, 0.4], 2, maximum=0.1)
    torch.testing.assert_close(given.of(2, None), torch.tensor([0.05, 0.1]).double())


def test_a_model_without_values_keeps_it():
    with torch.device('meta'):
        prior = ClassPrior('counts', 2)
    prior.to('meta').half().set_counts([1, 3])
    assert prior.prior.is_meta
    assert prior.prior.dtype == torch.float64
    assert not prior.state_dict()
    assert prior.to_empty(device='cpu').of(2, None).tolist() == [0.25, 0.75]


PAIR_ROWS = torch.tensor([0, 0, 1, 2])
COLS = torch.tensor([0, 1, 1, 0])


def test_casts_and_moves_leave_the_counts_exact():
    counts = PairCounts()
    counts.set_counts([4099, 1], [1, 4099])
    counts.half()
    assert not counts.state_dict()
    assert counts.row_counts.tolist() == [4099, 1]
    counts.to('meta').to_empty(device='cpu')
    assert counts.row_counts.tolist() == [4099, 1]
    assert LabelCounts(1, [1], 70001).half().get().tolist() == [[70000, 1]]


@pytest.mark.parametrize(
    ('rows', 'cols', 'shape', 'message'),
    [
        ([0, 1, 2], [0, 1, 1], (4, 2), r'row_counts\[3\]=0'),
        ([0, 1, 2], [0, 0, 0], (3, 2), r'col_counts\[1\]=0'),
        ([0, 3], [0, 1], (3, 2), 'rows holds indices from 0 to 3'),
        ([0, -1], [0, 1], (3, 2), 'rows holds indices from -1'),
        ([0, 1], [0, 2], (2, 2), 'cols holds indices from 0 to 2'),
        ([0, 1, 0], [0, 1, 0], (2, 2), r'\(row 0, column 0\) occurs more'),
        ([0, 1], [0], (2, 2), 'one shape'),
        ([], [], (0, 2), 'shape must be'),
    ],
)
def test_bad_pairs_change_nothing(rows, cols, shape, message):
    counts = PairCounts()
    counts.set_pairs(PAIR_ROWS, COLS, (3, 2))
    with pytest.raises(ValueError, match=message):
        counts.set_pairs(
            torch.tensor(rows, dtype=torch.long), torch.tensor(cols, dtype=torch.long), shape
        )
    assert counts.row_counts.tolist() == [2, 1, 1]


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
