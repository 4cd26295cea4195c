import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from score_lists import joined, summed_by, surrogate_mean

from mmrank.functional import OneSidedHuber, average_precision, stable_ap_loss
from mmrank.functional.metrics.average_precision import count_at_or_above
from mmrank.losses.lists import positive_index
from mmrank.losses.ranking.stable_ap import (
    mean_one,
    practical_weight,
    smoothed_rank,
    stable_ap_outer,
)
from theory.stable_ap import theorem1_weight

SETTING = dict(tau=0.7, bound=15.0, a=0.1, t=2.0, eps=0.1)


def brute_force_loss(pos, neg, mu, *, tau, bound, a, t, eps, rho=None, weights='normalised'):
    """Formula by formula in plain Python floats."""

    def huber(x):
        if x < 0:
            return 1 - 2 * x / tau
        return (1 - x / tau) ** 2 if x < tau else 0.0

    if not pos:
        return 0.0
    total, total_weight = 0.0, 0.0
    for s in pos:
        rank = min(max(huber(s - mu) / bound, 0.0), 1.0)
        weight = ((1 + a) / (rank + a)) ** t
        total += weight * sum(huber(s - n) for n in neg)
        total_weight += weight
    if weights == 'normalised':
        total /= total_weight / len(pos)
    pairs = len(pos) * max(len(neg), 1)
    rho = len(neg) / len(pos) if rho is None else rho
    x = rho * total / pairs
    return math.sqrt(eps**2 + x / (1 + x))


values = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.7]), st.floats(-20, 20))


@given(
    st.lists(values, max_size=8),
    st.lists(values, max_size=12),
    values,
    st.sampled_from([None, 1.0, 30.0]),
    st.sampled_from(['intervals', 'pairs']),
    st.sampled_from(['normalised', 'printed']),
)
def test_equals_brute_force(pos, neg, mu, rho, method, weights):
    scores = torch.tensor(pos + neg, dtype=torch.float64)
    is_positive = torch.arange(len(scores)) < len(pos)
    with summed_by(method):
        got = stable_ap_loss(scores, is_positive, mu, rho=rho, weights=weights, **SETTING)
    expected = brute_force_loss(pos, neg, mu, rho=rho, weights=weights, **SETTING)
    assert got.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize('method', ['intervals', 'pairs'])
@pytest.mark.parametrize('rho', [None, 1.0])
def test_gradcheck_with_frozen_weights(method, rho):
    """With t = 0 the weight is constant: the whole gradient is checked."""
    torch.manual_seed(0)
    pos = torch.randn(5, dtype=torch.float64, requires_grad=True)
    neg = torch.randn(11, dtype=torch.float64, requires_grad=True)
    setting = {**SETTING, 't': 0.0}
    with summed_by(method):
        assert torch.autograd.gradcheck(
            lambda p, n: stable_ap_loss(*joined(p, n), 0.2, rho=rho, **setting), (pos, neg)
        )


def test_weight_passes_no_gradient_and_positives_are_pushed_up():
    torch.manual_seed(1)
    pos = torch.randn(6, dtype=torch.float64, requires_grad=True)
    neg = torch.randn(40, dtype=torch.float64)
    mu = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    loss = stable_ap_loss(*joined(pos, neg), mu, **SETTING)
    grad, grad_mu = torch.autograd.grad(loss, (pos, mu), allow_unused=True)
    assert grad_mu is None
    assert (grad <= 0).all()
    # The same with the weights put in as constants, by autograd throughout.
    rank = smoothed_rank(pos.detach(), mu.detach(), OneSidedHuber(0.7), 15.0)
    weight = mean_one(practical_weight(rank, 0.1, 2.0)[None])
    means = surrogate_mean(pos, neg, SETTING['tau'])
    rho = 40 / 6
    x = rho * (weight[0] * means).mean()
    expected = torch.autograd.grad((0.1**2 + x / (1 + x)).sqrt(), pos)[0]
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize('seed', range(20))
def test_theorem_1(seed):
    """1 - AP <= mean htilde(rho l_i/r_i) <= q/2 h(rho/n+ sum w_i l_i)."""
    g = torch.Generator().manual_seed(seed)
    num_pos = 2 * int(torch.randint(1, 30, (1,), generator=g))
    num_neg = int(torch.randint(1, 400, (1,), generator=g))
    pos = torch.rand(num_pos, generator=g, dtype=torch.float64) * 2 - 0.8
    neg = torch.rand(num_neg, generator=g, dtype=torch.float64) * 2 - 1.2
    tau, eps, rho = 0.5, 0.01, num_neg / num_pos
    bound = OneSidedHuber(tau).bound(-1.2, 1.2)
    scores = torch.cat([pos, neg])
    labels = torch.arange(scores.numel()) < num_pos
    risk = 1 - average_precision(scores, labels)
    means = surrogate_mean(pos, neg, tau)
    rank = count_at_or_above(pos, pos) / num_pos
    x = rho * means / rank
    middle = (x / (1 + x)).mean()
    q = math.pi / 2 + 2 * (1 + rho * bound) / (1 + 2 * rho * bound)
    weighted = (theorem1_weight(rank, rho, bound) * means).sum()
    upper = q / 2 * stable_ap_outer(rho / num_pos * weighted, eps)
    total = theorem1_weight(rank, rho, bound).sum() / num_pos
    # Step (b) of the proof: the weights inside h have mean 1.
    step_b = total * stable_ap_outer(rho / num_pos * weighted / total, eps)
    assert risk <= middle + 1e-12
    assert middle <= step_b + 1e-12
    assert step_b <= upper + 1e-12


@pytest.mark.parametrize('weights', ['normalised', 'printed'])
@pytest.mark.parametrize('seed', range(10))
def test_lemma_1_bounded_difference(seed, weights):
    """Replacing one sample moves the loss by no more than the bound.

    Weights of mean 1 obey a tighter one: a negative moves the mean of l by B/n-, a positive by B
    Bw/(n+ - 1 + Bw), and h is 1/(2 eps)-Lipschitz.
    """
    g = torch.Generator().manual_seed(seed)

    def uniform(n):
        return torch.rand(n, generator=g, dtype=torch.float64) * 2 - 1

    tau, a, t, eps = 0.5, 0.1, 2.0, 0.1
    bound = OneSidedHuber(tau).bound(-1, 1)
    pos, neg = uniform(12), uniform(90)
    rho, largest_weight = 90 / 12, ((1 + a) / a) ** t
    setting = dict(tau=tau, bound=bound, a=a, t=t, eps=eps, rho=rho)
    setting['weights'] = weights
    limit_pos = rho * bound * largest_weight / (eps * 12)
    limit_neg = rho * bound * largest_weight / (eps * 90)
    if weights == 'normalised':
        share = largest_weight / (11 + largest_weight)
        assert rho * bound * share / (2 * eps) < limit_pos
        limit_pos = rho * bound * share / (2 * eps)
        limit_neg = rho * bound / (2 * eps * 90)
    mu = pos.mean()
    loss = stable_ap_loss(*joined(pos, neg), mu, **setting)
    for value in (-1.0, 0.0, 1.0):
        changed = pos.clone()
        changed[3] = value
        step = (stable_ap_loss(*joined(changed, neg), mu, **setting) - loss).abs()
        assert step <= limit_pos
        changed = neg.clone()
        changed[3] = value
        step = (stable_ap_loss(*joined(pos, changed), mu, **setting) - loss).abs()
        assert step <= limit_neg


def test_positives_are_padded_to_the_longest_list():
    scores = torch.arange(12.0).view(3, 4)
    labels = torch.tensor([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]).bool()
    index, mask = positive_index(labels)
    pos = scores.gather(1, index)
    assert mask.tolist() == [[True, True], [False, False], [True, False]]
    assert pos[mask].tolist() == [1, 3, 8]
    index, mask = positive_index(torch.zeros_like(labels))
    assert index.shape == mask.shape == (3, 0)


def test_infinite_scores_give_the_limit_and_nan_shows():
    inf = float('inf')
    pos = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = stable_ap_loss(*joined(pos, torch.tensor([inf, 0.0])), 1.5, **SETTING)
    assert loss.item() == pytest.approx(math.sqrt(1.01))
    loss.backward()
    assert pos.grad.isfinite().all()
    loss = stable_ap_loss(torch.tensor([inf, -inf, 0.0]), torch.tensor([1, 0, 0]), 0.0, **SETTING)
    assert loss.item() == pytest.approx(0.1)
    assert stable_ap_loss(*joined(pos, torch.tensor([float('nan')])), 0.0, **SETTING).isnan()


def test_outer_function():
    x = torch.tensor([0.0, 1e-9, 1.0, 1e12, float('inf')], dtype=torch.float64, requires_grad=True)
    y = stable_ap_outer(x, 0.1)
    expected = [math.sqrt(0.01 + v) for v in (0, 1e-9, 0.5, 1, 1)]
    assert y.tolist() == pytest.approx(expected, rel=1e-9)
    slope = torch.autograd.grad(y.sum(), x)[0]
    assert slope.tolist() == pytest.approx(
        [
            0.5 / 0.1 / (1 + v) ** 2
            if v < 1e-6
            else 0.5 / math.sqrt(0.01 + 0.5) / 4
            if v == 1
            else 0
            for v in (0.0, 1e-9, 1.0, 1e12, 1e300)
        ],
        abs=1e-6,
    )


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'rho': 0.0}, 'rho must be'),
        ({'weights': 'mean'}, "weights='mean' is unknown"),
        ({'eps': 0.0}, 'eps must be'),
        ({'a': 0.0}, 'a must be'),
        ({'a': -1.0}, 'a must be'),
        ({'t': -1.0}, 't must be'),
        ({'bound': 0.0}, 'bound must be'),
        ({'tau': 0.0}, 'tau must be'),
    ],
)
def test_bad_parameters_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        stable_ap_loss(torch.zeros(2), torch.zeros(2), 0.0, **{**SETTING, **change})


def test_practical_weight():
    x = torch.linspace(0, 1, 11, dtype=torch.float64)
    weight = practical_weight(x, a=0.1, t=2.0)
    assert weight[0].item() == pytest.approx(121.0)
    assert weight[-1].item() == pytest.approx(1.0)
    assert (weight.diff() < 0).all()
    assert (practical_weight(x, t=0.0) == 1).all()


def test_smoothed_rank_is_clamped_and_orders_by_score():
    pos = torch.tensor([-1e4, -1.0, 0.0, 0.4, 2.0, 1e4])
    rank = smoothed_rank(pos, 0.5, OneSidedHuber(1.0), bound=21.0)
    assert rank[0] == 1
    assert (rank[-2:] == 0).all()
    assert (rank.diff() <= 0).all()
    assert rank[2].item() == pytest.approx(2 / 21)


def test_mean_one_divides_each_list_by_its_own_mean():
    weight = torch.tensor([[121.0, 60.0, 0.0], [3.0, 0.0, 0.0], [0.0] * 3])
    got = mean_one(weight)
    assert got[0].tolist() == pytest.approx([121 / 90.5, 60 / 90.5, 0])
    assert got[1].tolist() == [1, 0, 0]
    assert got[2].tolist() == [0, 0, 0]
    torch.testing.assert_close(mean_one(weight[:1, :2]), got[:1, :2])
