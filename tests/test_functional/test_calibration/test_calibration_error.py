"""Calibration errors against their definitions, in plain loops."""

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from mmrank.functional import (
    expected_calibration_error,
    localisation_aware_calibration_error,
    reliability_bins,
)


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


def brute_force_laece(scores, ious, labels, num_bins):
    """Oksuz et al. 2023: precision times mean IoU of the true positives."""
    errors = []
    for c in sorted(set(labels)):
        mine = [(s, u) for s, u, k in zip(scores, ious, labels) if k == c]
        error = 0.0
        for j in range(num_bins):
            low, high = j / num_bins, (j + 1) / num_bins
            bin_ = [(s, u) for s, u in mine if low < s <= high or s == j == 0]
            if not bin_:
                continue
            right = [u for _, u in bin_ if u > 0]
            precision = len(right) / len(bin_)
            mean_iou = sum(right) / len(right) if right else 0.0
            confidence = sum(s for s, _ in bin_) / len(bin_)
            error += len(bin_) / len(mine) * abs(confidence - precision * mean_iou)
        errors.append(error)
    return sum(errors) / len(errors)


# Edges of bins among them.
numbers = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.2, 0.25, 0.4, 0.6, 0.7, 1.0]))
boxes = st.lists(
    st.tuples(numbers, st.one_of(st.just(0.0), st.floats(0.5, 1)), st.integers(0, 2)),
    min_size=1,
    max_size=40,
)


@given(boxes, st.sampled_from([1, 4, 5, 10, 25]))
@example([(0.75, 1.0, 0), (0.7, 0.5, 0)], 10)
@example([(0.75, 0.0, 0), (0.7, 1.0, 0)], 10)
def test_errors_are_those_of_the_definitions(found, num_bins):
    scores, ious, labels = zip(*found)
    s, u = (torch.tensor(x, dtype=torch.float64) for x in (scores, ious))
    assert expected_calibration_error(s, u > 0, num_bins).item() == (
        pytest.approx(brute_force_ece(scores, [x > 0 for x in ious], num_bins), abs=1e-12)
    )
    got = localisation_aware_calibration_error(s, u, torch.tensor(labels), num_bins)
    expected = brute_force_laece(scores, ious, labels, num_bins)
    assert got.item() == pytest.approx(expected, abs=1e-12)


def test_bins():
    bins = reliability_bins(torch.tensor([0.0, 0.25, 0.26, 1.0]), torch.tensor([0, 1, 1, 0]), 4)
    assert bins.count.tolist() == [2, 1, 0, 1]
    assert bins.confidence.tolist()[:2] == pytest.approx([0.125, 0.26])
    assert bins.accuracy.tolist()[:2] == [0.5, 1]
    assert bins.confidence[2].isnan()
    assert bins.accuracy[2].isnan()


def test_probabilities_have_a_small_error():
    g = torch.Generator().manual_seed(0)
    p = torch.rand(40_000, generator=g, dtype=torch.float64)
    y = torch.rand(40_000, generator=g) < p
    assert expected_calibration_error(p, y) < 0.02
    assert expected_calibration_error(p**3, y) > 0.2


def test_no_box_has_no_error():
    none = torch.zeros(0)
    assert expected_calibration_error(none, none).isnan()
    assert localisation_aware_calibration_error(none, none, none.long()).isnan()


@pytest.mark.parametrize(
    ('scores', 'targets', 'num_bins', 'text'),
    [
        ([0.5, 1.5], [0, 1], 5, 'scores must be in'),
        ([0.5, float('nan')], [0, 1], 5, 'scores is NaN at'),
        ([0.5, 0.5], [0, 2], 5, 'targets must be in'),
        ([0.5], [0, 1], 5, 'of one length'),
        ([0.5], [1], 0, 'num_bins must be at least 1'),
    ],
)
def test_bad_input_is_named(scores, targets, num_bins, text):
    with pytest.raises(ValueError, match=text):
        expected_calibration_error(torch.tensor(scores), torch.tensor(targets), num_bins)


def test_labels_of_other_boxes_are_refused():
    with pytest.raises(ValueError, match='labels must have the shape'):
        localisation_aware_calibration_error(torch.rand(3), torch.rand(3), torch.zeros(2))
