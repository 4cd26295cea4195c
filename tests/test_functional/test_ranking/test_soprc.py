import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from score_lists import joined, one_sided_huber, one_sided_sigmoid, summed_by

from mmrank.functional import average_precision, soprc_loss

SETTING = dict(tau1=0.7, tau2=0.2)


def brute_force_loss(pos, neg, v, *, prior, tau1, tau2):
    """Equation 8 in plain Python floats."""

    def huber(x):
        if x < 0:
            return 1 - 2 * x / tau1
        return (1 - x / tau1) ** 2 if x < tau1 else 0.0

    if not pos:
        return 0.0
    if prior is None:
        prior = len(pos) / (len(pos) + len(neg))
    total = 0.0
    for s in pos:
        above = sum(huber(s - t) for t in neg) / max(len(neg), 1)
        share = (1 + sum(math.tanh((x - s) / (2 * tau2)) for x in v if x > s)) / (len(v) + 1)
        x = (1 - prior) / prior * above / share
        total += x / (1 + x)
    return total / len(pos)


values = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.7]), st.floats(-20, 20))


@given(
    st.lists(values, max_size=8),
    st.lists(values, max_size=12),
    st.lists(values, min_size=1, max_size=9),
    st.sampled_from([None, 0.5, 0.003]),
    st.sampled_from(['intervals', 'pairs']),
)
def test_equals_brute_force(pos, neg, v, prior, method):
    scores = torch.tensor(pos + neg, dtype=torch.float64)
    is_positive = torch.arange(len(scores)) < len(pos)
    with summed_by(method):
        got = soprc_loss(
            scores, is_positive, torch.tensor(v, dtype=torch.float64), prior=prior, **SETTING
        )
    expected = brute_force_loss(pos, neg, v, prior=prior, **SETTING)
    assert got.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


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
    pos, neg, v = _scores()
    pos.requires_grad_()
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
    assert not torch.allclose(torch.autograd.grad(whole, pos)[0], wanted)


def test_v_gets_no_gradient():
    pos, neg, v = _scores()
    v.requires_grad_()
    loss = soprc_loss(*joined(pos.requires_grad_(), neg), v, prior=0.1, **SETTING)
    loss.backward()
    assert v.grad is None
    assert pos.grad.abs().sum() > 0


@given(st.lists(values, min_size=1, max_size=8), st.lists(values, max_size=12))
def test_bounds_the_average_precision_risk(pos, neg):
    """With the batch's ratio and its positives as v: 1 - AP <= f."""
    pos = torch.tensor(pos, dtype=torch.float64)
    neg = torch.tensor(neg, dtype=torch.float64)
    labels = torch.arange(len(pos) + len(neg)) < len(pos)
    risk = 1 - average_precision(torch.cat([pos, neg]), labels)
    loss = soprc_loss(*joined(pos, neg), pos, prior=None, **SETTING)
    assert loss >= risk - 1e-12


def test_proposition_2_prior_makes_it_independent_of_the_sampling_rate():
    """Binormal scores, as in fig. 1: v stands for all 20,000 positives."""
    g = torch.Generator().manual_seed(3)
    pi, setting = 0.1, dict(tau1=1.0, tau2=0.001)
    pos = torch.randn(20000, generator=g, dtype=torch.float64) + 1
    neg = torch.randn(180000, generator=g, dtype=torch.float64)
    v = pos.quantile((torch.arange(1000) + 0.5).double() / 1000)
    whole = soprc_loss(*joined(pos, neg), v, prior=pi, **setting).item()
    for n_pos, n_neg, bias in ((800, 79200, 0.06), (2500, 22500, 0.0), (5000, 5000, -0.15)):
        batch = pos[:n_pos], neg[:n_neg]
        unbiased = soprc_loss(*joined(*batch), v, prior=pi, **setting).item()
        biased = soprc_loss(*joined(*batch), v, prior=None, **setting).item()
        assert unbiased == pytest.approx(whole, abs=0.01)
        if bias == 0:
            assert biased == pytest.approx(unbiased, rel=1e-12)
        else:
            assert (biased - whole) / bias > 1
