"""Monotone maps keep every order, and the calibration error by its definition."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from mmrank.calibration.monotone_map import interpolated_map
from mmrank.functional import expected_calibration_error, keep_order, reliability_bins

#: float32 numbers from 0 to 1 are 0 to this many steps above 0.
ONE = 0x3F800000
scores_32 = st.floats(0, 1, width=32)
knots = st.lists(st.tuples(scores_32, st.floats(0, 1)), min_size=1, max_size=6).map(
    lambda xs: list(zip(*(sorted(x) for x in zip(*xs))))
)


def neighbours(start, count):
    """float32 numbers one after another, as a row."""
    bits = torch.arange(start, start + count, dtype=torch.int32)
    return bits.view(torch.float32)[None]


def some_neighbours(count=4_000):
    """Runs of all magnitudes, 0 and 1 among them."""
    starts = [0, 10_000_000, *(int(x) << 23 for x in (20, 60, 100, 120, 125))]
    starts += [0x3E000000 + 12345, 0x3F000000 - 99, ONE - count + 1]
    return torch.cat([neighbours(x, count) for x in starts], 1)


MAPS = {
    'constant': ([0.3], [0.6]),
    'step at one score': ([0.5, 0.5], [0.0, 1.0]),
    'plateaus': ([0.1, 0.4, 0.4000001, 0.9], [0.02, 0.02, 0.97, 0.97]),
    'all right': ([0.0, 1.0], [1.0, 1.0]),
    'all wrong': ([0.0, 1.0], [0.0, 0.0]),
    'steep, then flat': ([0.0, 1e-6, 1.0], [0.0, 1.0, 1.0]),
    'tiny slope': ([0.0, 1.0], [0.5, 0.5 + 1e-12]),
}


@pytest.mark.parametrize('name', MAPS)
def test_interpolation_keeps_the_order_of_neighbours(name):
    x, y = (torch.tensor([v], dtype=torch.float64) for v in MAPS[name])
    # The runs are in order, but for their ends.
    scores = some_neighbours().sort(stable=True).values
    found = interpolated_map(scores, x, y)
    assert torch.equal(found.diff() > 0, scores.diff() > 0)
    assert found.min() >= 0
    assert found.max() <= 1
    plain = scores[0].double().numpy()
    expected = np.interp(plain, x[0], y[0])
    inside = ~np.isin(plain, x[0])
    assert np.abs(found[0].numpy() - expected)[inside].max() < 2**-20 + 1e-12


@given(knots, st.lists(scores_32, min_size=2, max_size=50))
def test_any_isotonic_map_keeps_order_and_ties(points, scores):
    x, y = torch.tensor(points, dtype=torch.float64).T[:, None]
    row = torch.tensor([scores])
    got = interpolated_map(row, x, y)[0]
    below = row[0][:, None] < row[0]
    assert torch.equal(got[:, None] < got, below)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_keeps_its_ties(dtype):
    scores = torch.tensor([0.1, 0.1, 0.5, 1.0], dtype=dtype)
    got = keep_order(scores, torch.zeros(4))
    assert got.dtype == torch.float64
    assert got[0] == got[1]
    assert bool((got[1:].diff() > 0).all())


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
    assert bins.confidence.tolist() == pytest.approx([0.125, 0.26, math.nan, 1], nan_ok=True)
    assert bins.accuracy.tolist() == pytest.approx([0.5, 1, math.nan, 0], nan_ok=True)
    none = torch.zeros(0)
    assert expected_calibration_error(none, none).isnan()
