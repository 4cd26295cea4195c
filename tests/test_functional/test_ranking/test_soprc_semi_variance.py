import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmrank.functional import batch_semi_variance, semi_variance, upper_semi_variance

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
    def padded(x):
        mask = torch.arange(len(x) + 2) < len(x)
        values = torch.tensor([*x, math.nan, 7.0], dtype=F64)
        return values[None], mask[None]

    (p, p_mask), (n, n_mask) = padded(pos), padded(neg)
    got = semi_variance(p, n, lam1=lam1, lam2=lam2, pos_mask=p_mask, neg_mask=n_mask)
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

    def padded(rows):
        width = max(map(len, rows)) + 1
        values = [[*x, *[math.nan] * (width - len(x))] for x in rows]
        masks = [[i < len(x) for i in range(width)] for x in rows]
        return torch.tensor(values, dtype=F64), torch.tensor(masks)

    (p, p_mask), (n, n_mask) = (padded(rows) for rows in zip(*lists))
    got = batch_semi_variance(p, n, lam1=lam1, lam2=2.0, pos_mask=p_mask, neg_mask=n_mask)
    expected = batch_by_hand(lists, lam1, 2.0)
    assert got.item() == pytest.approx(expected, rel=1e-9, abs=1e-10)


def test_gradcheck_of_the_form_of_the_batch():
    torch.manual_seed(0)
    pos = torch.randn(2, 5, dtype=F64, requires_grad=True)
    neg = torch.randn(2, 9, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda p, n: batch_semi_variance(p, n, lam1=0.3, lam2=0.7), (pos, neg)
    )


def test_gradcheck_moves_the_mean_too():
    torch.manual_seed(0)
    pos = torch.randn(2, 5, dtype=F64, requires_grad=True)
    neg = torch.randn(2, 9, dtype=F64, requires_grad=True)
    masks = dict(pos_mask=torch.rand(2, 5) < 0.8, neg_mask=torch.rand(2, 9) < 0.8)
    assert torch.autograd.gradcheck(
        lambda p, n: semi_variance(p, n, lam1=0.3, lam2=0.7, **masks), (pos, neg)
    )


def test_edge_scores_and_dtypes():
    one = torch.ones(1, 1, dtype=torch.bool)
    assert upper_semi_variance(torch.tensor([[3.0]]), one) == 0
    empty = torch.zeros(2, 0, requires_grad=True)
    value = upper_semi_variance(empty, empty.bool())
    assert value.tolist() == [0, 0]
    value.sum().backward()
    both = torch.ones(1, 2, dtype=torch.bool)
    bad = torch.tensor([[math.inf, 0.0]], requires_grad=True)
    value = upper_semi_variance(bad, both)
    value.sum().backward()
    assert value.isfinite()
    assert bad.grad.isfinite().all()
    assert upper_semi_variance(torch.tensor([[math.nan, 0.0]]), both).isnan()
    half = torch.tensor([[1.0, 3.0]], dtype=torch.float16, requires_grad=True)
    value = upper_semi_variance(half, both)
    assert value.item() == 0.5
    value.sum().backward()
    assert half.grad.dtype == torch.float16
    assert half.grad.tolist() == [[-0.5, 0.5]]


def test_bad_input_is_named():
    x, mask = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match='lam2 must be >= 0'):
        semi_variance(x, x, lam1=0.0, lam2=-1.0)
    with pytest.raises(ValueError, match='of one shape'):
        upper_semi_variance(x, mask[:, :1])
    with pytest.raises(TypeError, match='float dtype'):
        upper_semi_variance(x.long(), mask)
