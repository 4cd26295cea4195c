"""Rivals of iSogCLR that learn temperatures by gradient; its clipping."""

import pytest
import torch
from random_batches import assert_same_gradients, two_views
from torch.nn.functional import cross_entropy, normalize

from mmrank.errors import UserError
from mmrank.losses import BimodalISogCLRLoss, IndividualCLIPLoss, ISogCLRLoss, TaUSimCLRLoss


def simclr_with_temperatures(view1, view2, tau):
    """Each anchor by a loop, with its own temperature."""
    e = torch.cat([view1[:, -1], view2[:, -1]])
    rows = torch.cat([view1[:, :-1], view2[:, :-1]])
    rows, n = rows / rows.norm(dim=1, keepdim=True), len(view1)
    losses = []
    for i in range(2 * n):
        positive = (i + n) % (2 * n)
        counted = [j for j in range(2 * n) if j not in (i, positive)]
        logits = rows @ rows[i] / (1 + torch.exp(-e[i])) / tau
        losses.append(logits[counted].logsumexp(0) - logits[positive])
    return sum(losses) / (2 * n)


def test_tau_simclr_is_simclr_with_the_networks_temperatures():
    leaves = [x.requires_grad_() for x in two_views(5, dim=4)]
    got = TaUSimCLRLoss(tau=0.5)(*leaves)
    expected = simclr_with_temperatures(*leaves, 0.5)
    assert_same_gradients(got, expected, leaves)


def test_tau_simclr_scales_cosines_as_the_authors_code():
    loss = TaUSimCLRLoss(tau=0.5)
    temperature = loss.temperatures(torch.tensor([[1.0, 0.0, 3.0]]))
    assert float(1 / temperature) == pytest.approx(1.905, abs=5e-4)
    one, two = two_views(3, dim=4)
    one[:, -1], two[:, -1] = -1e6, 1e6
    assert loss(one.float(), two.float()).isfinite()
    assert loss.diagnostics['tau_min'] == pytest.approx(0.5)
    with pytest.raises(UserError, match='Fix: out_channels'):
        loss(one[:, :1], two[:, :1])


def clip_with_temperatures(images, texts, image_tau, text_tau):
    images = normalize(images, dim=1)
    texts = normalize(texts, dim=1)
    scores = images @ texts.t()
    own = torch.arange(len(texts))
    of_images = cross_entropy(scores / image_tau[:, None], own)
    return (of_images + cross_entropy(scores.t() / text_tau[:, None], own)) / 2


def test_individual_clip_and_the_gradient_of_each_temperature():
    loss = IndividualCLIPLoss(num_samples=9, tau=0.3).double()
    with torch.no_grad():
        loss.image_tau += torch.linspace(0, 0.2, 9)
        loss.text_tau += torch.linspace(0.1, 0, 9)
    idx = torch.tensor([7, 2, 0, 5])
    leaves = [x.requires_grad_() for x in two_views(4, dim=3)]
    leaves += [loss.image_tau, loss.text_tau]
    got = loss(*leaves[:2], idx)
    expected = clip_with_temperatures(*leaves[:2], loss.image_tau[idx], loss.text_tau[idx])
    assert_same_gradients(got, expected, leaves)
    assert torch.autograd.grad(got, leaves[2])[0].count_nonzero() == 4


@pytest.mark.parametrize('ranked_right', [False, True])
def test_mean_temperature_grows_while_pairs_are_ranked_wrong(ranked_right):
    """As appendix C.3 reports; with the sign that its equation has."""
    loss = IndividualCLIPLoss(num_samples=4, tau=0.3)
    images = torch.eye(4)
    texts = images if ranked_right else images.roll(1, 1)
    loss(images, texts, torch.arange(4)).backward()
    assert ((loss.image_tau.grad > 0) == ranked_right).all()


@pytest.mark.parametrize('kind', [ISogCLRLoss, BimodalISogCLRLoss])
def test_clipped_gradient_of_the_temperatures(kind):
    """One visit: ``tau - eta beta1 clip(G)``, as momentum starts at 0."""
    settings = dict(
        num_samples=6, rho=0.3, tau_init=0.5, tau0=0.05, tau_max=2.0,
        eta=0.01, beta1=0.5,
    )  # fmt: skip
    idx, batch = torch.arange(6), two_views(6, dim=4)
    plain, clipped = kind(**settings), kind(**settings, gradient_clip=0.05)
    for loss in (plain, clipped):
        loss(*batch, idx)
    for free, bound in zip(plain.states(), clipped.states()):
        gradient = (0.5 - free.tau) / (0.01 * 0.5)
        expected = 0.5 - 0.01 * 0.5 * gradient.clamp(-0.05, 0.05)
        torch.testing.assert_close(bound.tau, expected)
        assert (gradient.abs() > 0.05).any()


def test_gain_of_a_visit_is_noted():
    loss = ISogCLRLoss(num_samples=4, rho=0.3, tau_init=0.5, eta=0.1)
    loss(*two_views(4, dim=3), torch.arange(4))
    assert loss.diagnostics['tau_gain'] == pytest.approx(2 * 0.1 * 0.3 / 0.5)
