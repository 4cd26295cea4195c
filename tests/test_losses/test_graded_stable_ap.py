"""Stable AP with a relevance of each positive, against what it is the mean of."""

import itertools

import pytest
import torch

from mmrank.functional import one_sided_huber, stable_ap_loss

SETTING = dict(tau=0.7, bound=15.0, a=0.1, t=2.0, eps=0.1)
MU = 0.2


def _list(num_pos=12, num_neg=50, seed=0):
    """Scores, labels and relevances of one list, the positives first."""
    g = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(num_pos + num_neg, generator=g, dtype=torch.float64)
    labels = torch.arange(len(scores)) < num_pos
    grades = torch.where(labels, 0.1 + 0.9 * torch.rand(len(scores), generator=g).double(), 0)
    return scores, labels, grades


def _weights(pos):
    smoothed = (one_sided_huber(pos - MU, SETTING['tau']) / SETTING['bound']).clamp(0, 1)
    return ((1 + SETTING['a']) / (smoothed + SETTING['a'])) ** SETTING['t']


def _brute_force(scores, labels, grades, rho, weights='normalised'):
    """The mean over thresholds of u, each with the positives below it as negatives."""
    pos, neg, u = scores[labels], scores[~labels], grades[labels]
    w = _weights(pos.detach())
    steps = torch.cat([u.new_zeros(1), u.unique()])
    total, mass = 0.0, 0.0
    for below, step in itertools.pairwise(steps):
        real = u >= step
        others = torch.cat([neg, pos[~real]])
        pairs = one_sided_huber(pos[real][:, None] - others, SETTING['tau'])
        own = w[real][:, None].expand_as(pairs)
        total = total + (step - below) * (own * pairs).sum()
        mass = mass + (step - below) * (own if weights == 'normalised' else own * 0 + 1).sum()
    x = rho * total / mass
    return (SETTING['eps'] ** 2 + x / (1 + x)).sqrt()


def _gradient(function, scores, *args, **kwargs):
    leaf = scores.clone().requires_grad_()
    value = function(leaf, *args, **kwargs)
    return value.detach(), torch.autograd.grad(value, leaf)[0]


@pytest.mark.parametrize('weights', ['normalised', 'printed'])
@pytest.mark.parametrize('num_pos', [1, 2, 12])
@pytest.mark.parametrize('ten', [False, True])
def test_is_the_mean_over_thresholds(ten, num_pos, weights):
    """Ten lists of one threshold each, as in COCO's metric, or all grades."""
    scores, labels, grades = _list(num_pos)
    if ten:
        grades = (grades * 10).ceil() / 10
    expected = _gradient(_brute_force, scores, labels, grades, 3.0, weights)
    for factor in (1.0, 7.0):  # Only ratios of relevances count.
        found = _gradient(
            stable_ap_loss,
            scores,
            labels,
            MU,
            **SETTING,
            rho=3.0,
            weights=weights,
            relevance=factor * grades,
        )
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize('weights', ['normalised', 'printed'])
def test_equal_relevances_are_the_loss_without(weights):
    scores, labels, _ = _list()
    setting = dict(SETTING, weights=weights)
    expected = _gradient(stable_ap_loss, scores, labels, MU, **setting)
    for grade in (1.0, 0.3):
        relevance = torch.full_like(scores, grade)
        found = _gradient(stable_ap_loss, scores, labels, MU, **setting, relevance=relevance)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_two_grades_by_hand():
    """Relevance 1 at score 0 and u = 1/2 at score 1/2, below a background of 1."""
    scores = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64, requires_grad=True)
    relevance = torch.tensor([1.0, 0.5, 0.0])
    setting = dict(tau=1.0, bound=21.0, t=0.0, rho=1.0)
    loss = stable_ap_loss(scores, relevance > 0, 0.0, **setting, relevance=relevance)
    # l(-1) = 3, l(-1/2) = 2: 1 * 3 + 1/2 * 2 over the background, 1/2 * 2 over the other positive.
    x = (3 + 1 + 1) / (1 + 0.5 + 0.5)
    assert loss.item() == pytest.approx((0.01 + x / (1 + x)) ** 0.5, rel=1e-14)
    (slope,) = torch.autograd.grad(loss, scores)
    outer = 0.5 / loss.item() / (1 + x) ** 2 / 2
    # By l' = -2: the first is below both, the second is pushed down by it and up by the background.
    by_hand = torch.tensor([-2 * 1 - 2 * 0.5, 2 * 0.5 - 2 * 0.5, 2 * 1 + 2 * 0.5]).double()
    torch.testing.assert_close(slope, outer * by_hand)
