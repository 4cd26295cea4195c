"""A rival of iSogCLR that learns temperatures by gradient; its clipping."""

import pytest
import torch
from random_batches import assert_same_gradients, two_views

from mmrank.errors import UserError
from mmrank.losses import BimodalISogCLRLoss, ISogCLRLoss, TaUSimCLRLoss


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
