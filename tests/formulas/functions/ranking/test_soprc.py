"""Gradients of SOPRC, its ranks by interpolation, and its semi-variances.

Its value: test_smooth_rankings.py.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from score_lists import joined, one_sided_huber, one_sided_sigmoid, summed_by

from mmrank.functional import soprc_loss, split_lists
from mmrank.losses.ranking.soprc import _in_one_row, _semi_variance
from mmrank.state.score_vector import interpolate_scores

SETTING = dict(tau1=0.7, tau2=0.2)


def _scores(n_pos=6, n_neg=15, n_v=10, dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(n, generator=g, dtype=torch.float64).to(dtype) for n in (n_pos, n_neg, n_v)]


@pytest.mark.parametrize('method', ['intervals', 'pairs'])
@pytest.mark.parametrize('prior', [None, 0.1])
def test_gradcheck_with_v_fixed(method, prior):
    pos, neg, v = _scores()
    with summed_by(method):
        assert torch.autograd.gradcheck(
            lambda p, n: soprc_loss(*joined(p, n), v, prior=prior, **SETTING),
            (pos.requires_grad_(), neg.requires_grad_()),
        )


def test_without_rank_gradient_the_denominator_is_a_constant():
    """Equal value; the gradient is that of eq. 8 with r_i held fixed."""
    pos, neg, v = (x.requires_grad_() for x in _scores())
    share = (1 + one_sided_sigmoid(pos[:, None] - v, 0.2).sum(1)) / 11
    above = one_sided_huber(pos[:, None] - neg, 0.7).mean(1)
    expected = 9 * above / share.detach()
    expected = (expected / (1 + expected)).mean()
    (wanted,) = torch.autograd.grad(expected, pos)
    loss = soprc_loss(*joined(pos, neg), v, prior=0.1, rank_gradient=False, **SETTING)
    torch.testing.assert_close(loss, expected)
    (got,) = torch.autograd.grad(loss, pos)
    torch.testing.assert_close(got, wanted)
    whole = soprc_loss(*joined(pos, neg), v, prior=0.1, **SETTING)
    torch.testing.assert_close(whole, expected)
    by_pos, by_v = torch.autograd.grad(whole, [pos, v], allow_unused=True)
    assert not torch.allclose(by_pos, wanted)
    assert by_v is None


F64 = torch.float64


def brute_force_shares(scores, length, low, high):
    """Algorithm 2 in plain Python floats, point by point."""
    u = sorted(scores)
    n = len(u)
    if n == 1:
        u = [u[0], u[0], u[0]]
    else:
        below = min(max(2 * u[0] - u[1], low), u[0])
        above = max(min(2 * u[-1] - u[-2], high), u[-1])
        u = [below, *u, above]
    points = []
    for j in range(length):
        i = j * n // length + 1
        c = j * n / length - (i - 1)
        left = (1 - c) * u[i - 1] + c * u[i]
        right = (1 - c) * u[i] + c * u[i + 1]
        points.append((left + right) / 2)
    return points


scores = st.lists(
    st.one_of(st.sampled_from([0.0, 0.5]), st.floats(-1.5, 1.5)), min_size=1, max_size=12
)


@given(scores, st.integers(1, 30))
def test_shares_equal_brute_force(u, length):
    got = interpolate_scores(torch.tensor(u, dtype=F64), length, -1.0, 1.0)
    expected = brute_force_shares(u, length, -1.0, 1.0)
    torch.testing.assert_close(got, torch.tensor(expected, dtype=F64), rtol=1e-12, atol=1e-12)
    assert (got.diff() >= -1e-12).all()
    assert got.min() >= min(-1.0, min(u)) - 1e-12
    assert got.max() <= max(1.0, max(u)) + 1e-12


def semi_variance(lists, lam1, lam2, of_beyond):
    """Equation 9 in plain floats, of one mean of all lists; per score, or per score beyond it."""
    lists = [(pos, neg) for pos, neg in lists if pos]
    total = 0.0
    for side, lam, sign in ((0, lam1, -1), (1, lam2, 1)):
        values = [x for one in lists for x in one[side]]
        mean = sum(values) / max(len(values), 1)
        beyond = [(x - mean) ** 2 for x in values if sign * (x - mean) > 0]
        total += lam * sum(beyond) / max(len(beyond if of_beyond else values), 1)
    return total


scores_of_batch = st.lists(st.floats(-5, 5), max_size=9)


@given(
    scores_of_batch, scores_of_batch, scores_of_batch, st.sampled_from([0.0, 0.5]), st.booleans()
)
def test_semi_variances_of_padded_lists(pos, other, neg, lam1, of_beyond):
    """Each list has a mean of its own; of a batch in one row there is one mean of all."""
    batch = [(pos, neg), (other, neg[::2]), ([], neg)]
    width = max(len(p) + len(n) for p, n in batch) + 1
    rows = [[*p, *n, *[math.nan] * (width - len(p) - len(n))] for p, n in batch]
    place = torch.arange(width)
    is_positive = torch.stack([place < len(p) for p, _ in batch])
    mask = torch.stack([place < len(p) + len(n) for p, n in batch])
    lists = split_lists(torch.tensor(rows, dtype=F64), is_positive, mask)
    joined_lists = _in_one_row([lists]) if of_beyond else lists
    got = _semi_variance(joined_lists, lam1, 2.0, of_beyond)
    parts = [batch] if of_beyond else [[one] for one in batch]
    expected = [semi_variance(part, lam1, 2.0, of_beyond) for part in parts]
    assert got.flatten().tolist() == pytest.approx(expected, rel=1e-9, abs=1e-10)


@pytest.mark.parametrize('of_beyond', [False, True])
def test_gradcheck_moves_the_mean_too(of_beyond):
    torch.manual_seed(0)
    pos = torch.randn(2, 5, dtype=F64, requires_grad=True)
    neg = torch.randn(2, 9, dtype=F64, requires_grad=True)
    mask = torch.rand(2, 14) < 0.8

    def spread(pos, neg):
        return _semi_variance(split_lists(*joined(pos, neg), mask), 0.3, 0.7, of_beyond)

    assert torch.autograd.gradcheck(spread, (pos, neg))
