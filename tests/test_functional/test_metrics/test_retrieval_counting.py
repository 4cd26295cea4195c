import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmrank.functional import retrieval_metrics
from mmrank.functional.metrics.retrieval.ranking import count_at_or_above

INF = float('inf')
# Comparing, and many enough for a sort.
WIDTHS = (3, 80)


def check(scores, thresholds):
    scores, thresholds = torch.tensor(scores), torch.tensor(thresholds)
    row = torch.full((2, 1024), -INF)
    row[0, : scores.numel()] = scores
    row[1, -scores.numel() :] = scores.flip(0) / 2
    for width in WIDTHS:
        wanted = torch.full((2, width), INF)
        wanted[0, : thresholds.numel()] = thresholds
        wanted[1, -thresholds.numel() :] = thresholds / 2
        expected = (row[:, None] >= wanted[:, :, None]).sum(2)
        for dtype in (torch.float32, torch.float64):
            got = count_at_or_above(row.to(dtype), wanted.to(dtype))
            assert got.tolist() == expected.tolist()


floats = st.floats(-(2.0**99), 2.0**99, width=32) | st.sampled_from(
    [0.0, -0.0, 1.0, 1.0 + 2**-23, 1e-40, -1e-40]
)


@given(st.lists(floats, min_size=1, max_size=40), st.data())
def test_equals_comparing_all_pairs(scores, data):
    at = st.lists(st.sampled_from(scores), min_size=1, max_size=3)
    check(scores, data.draw(at))


@pytest.mark.parametrize(
    ('scores', 'thresholds'),
    [
        ([0.0, -0.0, 0.0, -0.0], [0.0, -0.0]),
        ([2.0] * 9, [2.0]),
        ([0.0, 2e-39, 4e-39], [0.0, 4e-39]),
        ([-3.0, -2.0, -2.0], [-2.0, -3.0]),
    ],
    ids=['signed zeros', 'all tied', 'subnormal span', 'negative'],
)
def test_edge_values(scores, thresholds):
    check(scores, thresholds)


def test_a_row_of_zeros_has_cosine_zero():
    x = torch.tensor([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [1.0, 1.0]])
    got = retrieval_metrics(x, torch.tensor([0, 0, 1, 2]))
    # 0 stands between the cosines of the first query, 0.71 and -1, and ties with nothing but
    # itself: all three tie for the query of zeros.
    assert got.first_rank.tolist() == [2, 3, 0, 0]
