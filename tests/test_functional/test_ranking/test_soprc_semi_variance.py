import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from score_lists import joined

from mmrank.functional import split_lists
from mmrank.losses.ranking.soprc import _in_one_row, _semi_variance

F64 = torch.float64


def brute_force(pos, neg, lam1, lam2):
    """Equation 9 in plain Python floats."""
    if not pos:
        return 0.0
    mean = sum(pos) / len(pos)
    total = lam1 * sum((s - mean) ** 2 for s in pos if s < mean) / len(pos)
    if neg:
        mean = sum(neg) / len(neg)
        total += lam2 * sum((t - mean) ** 2 for t in neg if t > mean) / len(neg)
    return total


scores = st.lists(st.floats(-5, 5), max_size=9)


@given(scores, scores, st.sampled_from([0.0, 0.5]), st.sampled_from([0, 2]))
def test_equals_brute_force_with_padding(pos, neg, lam1, lam2):
    scores = torch.tensor([*pos, math.nan, *neg, 7.0], dtype=F64)
    place = torch.arange(len(scores))
    mask = (place != len(pos)) & (place < len(scores) - 1)
    got = _semi_variance(split_lists(scores, place < len(pos), mask), lam1, lam2, False)
    expected = brute_force(pos, neg, lam1, lam2)
    assert got.item() == pytest.approx(expected, rel=1e-9, abs=1e-10)


def batch_by_hand(lists, lam1, lam2):
    """One mean of all lists; the mean square beyond it, in plain floats."""
    lists = [(pos, neg) for pos, neg in lists if pos]
    pos = [s for own, _ in lists for s in own]
    neg = [t for _, own in lists for t in own]
    total = 0.0
    for values, lam, sign in ((pos, lam1, -1), (neg, lam2, 1)):
        if not values:
            continue
        mean = sum(values) / len(values)
        beyond = [(x - mean) ** 2 for x in values if sign * (x - mean) > 0]
        total += lam * sum(beyond) / len(beyond) if beyond else 0.0
    return total


@given(scores, scores, scores, st.sampled_from([0.0, 0.5]))
def test_form_of_the_batch_equals_brute_force(pos, other, neg, lam1):
    lists = [(pos, neg), (other, neg[::2]), ([], neg)]

    width = max(len(p) + len(n) for p, n in lists) + 1
    scores = [[*p, *n, *[math.nan] * (width - len(p) - len(n))] for p, n in lists]
    place = torch.arange(width)
    is_positive = torch.stack([place < len(p) for p, _ in lists])
    mask = torch.stack([place < len(p) + len(n) for p, n in lists])
    scores = torch.tensor(scores, dtype=F64)
    joined_lists = _in_one_row([split_lists(scores, is_positive, mask)])
    got = _semi_variance(joined_lists, lam1, 2.0, True)
    expected = batch_by_hand(lists, lam1, 2.0)
    assert got.item() == pytest.approx(expected, rel=1e-9, abs=1e-10)


@pytest.mark.parametrize('of_beyond', [False, True])
def test_gradcheck_moves_the_mean_too(of_beyond):
    torch.manual_seed(0)
    pos = torch.randn(2, 5, dtype=F64, requires_grad=True)
    neg = torch.randn(2, 9, dtype=F64, requires_grad=True)
    mask = torch.rand(2, 14) < 0.8

    def spread(pos, neg):
        return _semi_variance(split_lists(*joined(pos, neg), mask), 0.3, 0.7, of_beyond)

    assert torch.autograd.gradcheck(spread, (pos, neg))
