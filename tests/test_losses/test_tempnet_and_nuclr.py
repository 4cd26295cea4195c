"""TempNet and NUCLR against their formulas, written out with a loop over steps."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from mmrank.losses import NUCLRLoss, TempNetLoss

SAMPLES, WIDTH = 20, 6


def batches(steps=5, size=8):
    """Images, texts and their samples; each pair is more alike than others."""
    g = torch.Generator().manual_seed(1)
    for _ in range(steps):
        images, noise = torch.randn(2, size, WIDTH, generator=g, dtype=torch.float64)
        pair = images, images + 0.8 * noise
        ids = torch.randperm(SAMPLES, generator=g)[:size]
        yield [x.requires_grad_() for x in pair], ids


def unit(views):
    return [normalize(x, dim=1) for x in views]


def differences(views):
    """``<a, z> - <a, a+>``, of images to texts and of texts to images; anchors are rows."""
    images, texts = unit(views)
    scores = images @ texts.t()
    return [s - s.diagonal()[:, None] for s in (scores, scores.t())]


def moved_average(old, new, rate=0.8):
    return new if old is None else (1 - rate) * old + rate * new


def assert_same_gradients(loss, expected, inputs):
    # The states are float32.
    grads = [torch.autograd.grad(x, inputs, retain_graph=True) for x in (loss, expected)]
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-7)


def temperatures(network, rows):
    """The network, written out with the arrays that it has."""
    named = dict(network.named_parameters())
    hidden = (rows @ named['project.weight'].t().double() + named['project.bias']).sigmoid()
    scores = hidden @ normalize(named['prototypes'].double(), dim=1).t()
    shares = (scores / named['log_scale'].double().exp()).softmax(1)
    weighted = (shares - 1 / scores.size(1)) * scores.sigmoid()
    level = (weighted * named['pool.weight'].double()).sum(1) + named['pool.bias']
    return 0.1 + 0.4 * level.sigmoid()


def test_tempnet_steps_as_its_formula():
    """Encoders get the gradient of the average; the networks of ``tau (log s + rho)``."""
    torch.manual_seed(0)
    rho = 2.0
    loss = TempNetLoss(SAMPLES, WIDTH, rho, 0.1, 0.5, prototypes=7, dropout=0.0)
    networks = [loss.image_network, loss.text_network]
    for network in networks:
        nn.init.normal_(network.pool.weight)
    averages = [{}, {}]
    for views, ids in batches():
        found = loss(*views, ids)
        value = expected = 0
        for h, rows, network, average in zip(differences(views), unit(views), networks, averages):
            tau = temperatures(network, rows.detach())
            is_other = ~torch.eye(len(ids), dtype=torch.bool)
            for i, sample in enumerate(ids.tolist()):
                others = h[i][is_other[i]]
                g = (others / tau[i].detach()).exp().mean()
                s = moved_average(average.get(sample), g.detach())
                average[sample] = s
                weights = (others / tau[i]).exp().detach() / s / len(others)
                slope = s.log() + rho - (weights * others / tau[i]).sum().detach()
                expected = expected + (weights * others).sum() + slope * tau[i]
                value = value + tau[i] * (s.log() + rho)
        assert found.item() == pytest.approx(value.item() / len(ids), rel=1e-5)
        assert_same_gradients(found, expected / len(ids), [*views, *loss.parameters()])


def test_tempnet_drops_in_training_alone():
    loss = TempNetLoss(SAMPLES, WIDTH, tau_min=0.1, tau_max=0.5)
    (views, ids), *_ = batches()
    values = {loss.eval()(*views, ids).item() for _ in range(3)}
    assert len(values) == 1
    loss.train()
    taus = []
    for _ in range(3):
        loss(*views, ids)
        taus.append(loss.diagnostics['image_tau'].item())
    assert len({*taus}) == 3
    assert all(0.1 < tau < 0.5 for tau in taus)


def test_nuclr_steps_as_its_formula():
    """Loss, averages and margins, which rise where softmaxes give a text more than its share."""
    tau, eta = 0.2, 0.1
    loss = NUCLRLoss(SAMPLES, tau, eta)
    states = [loss.image_margin, loss.text_margin]
    zetas = torch.full((2, SAMPLES), -0.05, dtype=torch.float64)
    slopes = [{}, {}]
    averages = [{}, {}]
    rest = 1 / (SAMPLES - 1)
    for views, ids in batches():
        found = loss(*views, ids)
        expected = 0
        size = len(ids)
        popularity = torch.zeros(2, size, dtype=torch.float64)
        for k, h in enumerate(differences(views)):
            other = zetas[1 - k]
            xi = max(other.max().item(), 0)
            for i, sample in enumerate(ids.tolist()):
                powers = ((h[i] - other[ids]) / tau).exp()
                is_other = torch.arange(size) != i
                g = powers[is_other].mean()
                s = moved_average(averages[k].get(sample), g.detach())
                averages[k][sample] = s
                expected = expected + tau * g / (s + math.exp(-xi / tau) * rest)
                share = powers.detach() / (s + math.exp(-other[sample] / tau) * rest)
                popularity[1 - k] += share / size
        assert_same_gradients(found, expected / size, views)
        for k, rate in enumerate((eta / 10, eta)):
            for i, sample in enumerate(ids.tolist()):
                new = 1 - popularity[k, i] * SAMPLES * rest
                slopes[k][sample] = moved_average(slopes[k].get(sample), new, 0.9)
                zetas[k, sample] -= rate * slopes[k][sample]
            torch.testing.assert_close(states[k].zeta.double(), zetas[k], rtol=1e-5, atol=1e-6)


def test_margins_stay_without_a_step():
    loss = NUCLRLoss(SAMPLES, 0.2)
    loss.image_margin.eta = loss.text_margin.eta = 0
    for views, ids in batches():
        loss(*views, ids)
    for state in (loss.image_margin, loss.text_margin):
        assert state.seen.sum() > 10
        assert (state.zeta == state.start).all()
        assert (state.u == 0).all()
