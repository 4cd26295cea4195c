"""The calibration error against its definition, in plain loops."""

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from mmrank.functional import expected_calibration_error, reliability_bins


def brute_force_ece(scores, targets, num_bins):
    """Küppers et al. 2020: shares of bins times |precision - confidence|."""
    total = 0.0
    for j in range(num_bins):
        low, high = j / num_bins, (j + 1) / num_bins
        mine = [(s, t) for s, t in zip(scores, targets) if low < s <= high or (j == 0 and s == 0)]
        if mine:
            confidence = math.fsum(s for s, _ in mine) / len(mine)
            precision = math.fsum(t for _, t in mine) / len(mine)
            total += len(mine) / len(scores) * abs(precision - confidence)
    return total


# Edges of bins among them.
numbers = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.2, 0.25, 0.4, 0.6, 0.7, 1.0]))
boxes = st.lists(st.tuples(numbers, st.booleans()), min_size=1, max_size=40)


@given(boxes, st.sampled_from([1, 4, 5, 10, 25]))
@example([(0.75, True), (0.7, True)], 10)
@example([(0.75, False), (0.7, True)], 10)
def test_error_is_that_of_the_definition(found, num_bins):
    scores, right = zip(*found)
    got = expected_calibration_error(
        torch.tensor(scores, dtype=torch.float64), torch.tensor(right), num_bins
    )
    assert got.item() == pytest.approx(brute_force_ece(scores, right, num_bins), abs=1e-12)


def test_bins():
    bins = reliability_bins(torch.tensor([0.0, 0.25, 0.26, 1.0]), torch.tensor([0, 1, 1, 0]), 4)
    assert bins.count.tolist() == [2, 1, 0, 1]
    assert bins.confidence.tolist()[:2] == pytest.approx([0.125, 0.26])
    assert bins.accuracy.tolist()[:2] == [0.5, 1]
    assert bins.confidence[2].isnan()
    assert bins.accuracy[2].isnan()


def test_no_box_has_no_error():
    none = torch.zeros(0)
    assert expected_calibration_error(none, none).isnan()
