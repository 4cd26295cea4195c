import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from score_lists import joined

from mmrank.functional import semi_variance

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
    got = semi_variance(scores, place < len(pos), lam1=lam1, lam2=lam2, mask=mask)
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
    got = semi_variance(scores, is_positive, lam1=lam1, lam2=2.0, mask=mask, per_batch=True)
    expected = batch_by_hand(lists, lam1, 2.0)
    assert got.item() == pytest.approx(expected, rel=1e-9, abs=1e-10)


@pytest.mark.parametrize('per_batch', [False, True])
def test_gradcheck_moves_the_mean_too(per_batch):
    settings = dict(lam1=0.3, lam2=0.7, per_batch=per_batch)
    torch.manual_seed(0)
    pos = torch.randn(2, 5, dtype=F64, requires_grad=True)
    neg = torch.randn(2, 9, dtype=F64, requires_grad=True)
    mask = torch.rand(2, 14) < 0.8
    assert torch.autograd.gradcheck(
        lambda p, n: semi_variance(*joined(p, n), mask=mask, **settings), (pos, neg)
    )
