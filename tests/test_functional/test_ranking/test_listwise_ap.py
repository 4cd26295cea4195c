"""List-wise AP against the histogram of its definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from score_lists import joined

from mmrank.functional import listwise_ap_loss

scores = st.lists(
    st.one_of(st.sampled_from([0.0, 0.5, -0.5, 1.0, -1.0, 1.5]), st.floats(-1.2, 1.2)), max_size=7
)


def brute_force(pos, neg, num_bins, low, high):
    """Eqs. 5 to 8 of the paper with a kernel for every bin."""
    if not pos:
        return 0.0
    width = (high - low) / (num_bins - 1)
    precision = recall = 0.0
    above_pos = above = 0.0
    total = 0.0
    for m in range(num_bins):
        centre = high - m * width

        def share(x, centre=centre):
            x = min(max(x, low), high)
            return max(1 - abs(x - centre) / width, 0.0)

        own = sum(share(x) for x in pos)
        above_pos += own
        above += own + sum(share(x) for x in neg)
        precision = above_pos / above if above else 0.0
        recall = own / len(pos)
        total += precision * recall
    return 1 - total


@given(
    scores,
    scores,
    st.sampled_from([2, 3, 5, 20]),
    st.sampled_from([(-1.0, 1.0), (0.0, 1.0), (-1.2, 0.7)]),
)
def test_any_list(pos, neg, num_bins, score_range):
    got = listwise_ap_loss(
        torch.tensor(pos + neg, dtype=torch.float64),
        torch.arange(len(pos) + len(neg)) < len(pos),
        num_bins=num_bins,
        score_range=score_range,
    )
    expected = brute_force(pos, neg, num_bins, *score_range)
    assert got.item() == pytest.approx(expected, abs=1e-9)


def test_scores_outside_of_the_range_count_but_have_no_gradient():
    pos = torch.tensor([1.7, 0.1], requires_grad=True)
    neg = torch.tensor([0.15, -3.0], requires_grad=True)
    loss = listwise_ap_loss(*joined(pos, neg))
    inside = listwise_ap_loss(*joined(pos.clamp(-1, 1), neg.clamp(-1, 1)))
    torch.testing.assert_close(loss, inside)
    loss.backward()
    assert pos.grad[0] == 0
    assert neg.grad[1] == 0
    assert pos.grad[1] < 0 < neg.grad[0]
