"""Counts of the training pairs, and what is refused."""

import pytest
import torch

from mmrank.state import PairCounts

ROWS = torch.tensor([0, 0, 1, 2])
COLS = torch.tensor([0, 1, 1, 0])


def test_counts():
    counts = PairCounts()
    assert counts.shape == (0, 0)
    counts.set_pairs(ROWS, COLS, (3, 2))
    assert counts.row_counts.tolist() == [2, 1, 1]
    assert counts.col_counts.tolist() == [2, 2]
    assert counts.num_positives == 4
    assert counts.shape == (3, 2)
    assert not counts.state_dict()


def test_casts_and_moves_leave_the_counts_exact():
    counts = PairCounts()
    counts.set_counts([4099, 1], [1, 4099])
    counts.half()
    assert counts.row_counts.tolist() == [4099, 1]
    counts.to('meta').to_empty(device='cpu')
    assert counts.row_counts.tolist() == [4099, 1]


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
    counts.set_pairs(ROWS, COLS, (3, 2))
    with pytest.raises(ValueError, match=message):
        counts.set_pairs(
            torch.tensor(rows, dtype=torch.long), torch.tensor(cols, dtype=torch.long), shape
        )
    assert counts.row_counts.tolist() == [2, 1, 1]
