"""iSogCLR, its rivals that learn temperatures, TempNet and NUCLR against loops."""

import math

import pytest
import torch
from subjects import assert_same_gradients, two_views
from torch import nn
from torch.nn.functional import normalize

from mmrank.losses import (
    BimodalISogCLRLoss,
    ISogCLRLoss,
    NUCLRLoss,
    SogCLRLoss,
    TaUSimCLRLoss,
    TempNetLoss,
)

SAMPLES = 12
OWN = dict(num_samples=SAMPLES, beta0=0.7)
LEARNS = dict(rho=0.4, tau_init=0.3, tau0=0.15, tau_max=0.34, eta=0.05, beta1=0.6)
FIXED = dict(tau_init=0.3, rho=0, eta=0, tau_max=9.0)
CLIPPED = dict(LEARNS, gradient_clip=0.05)
#: iSogCLR, its bound of the gradient, and SogCLR, whose temperature does not learn: the loss,
#: settings of the loops, and whether images and texts are two modalities.
KINDS = {
    'isogclr': (lambda: ISogCLRLoss(**OWN, eta=0.05), dict(eta=0.05), False),
    'bimodal': (lambda: BimodalISogCLRLoss(**OWN, **LEARNS), LEARNS, True),
    'clipped': (lambda: BimodalISogCLRLoss(**OWN, **CLIPPED), CLIPPED, True),
    'sogclr': (lambda: SogCLRLoss(**OWN, tau=0.3), FIXED, False),
    'bimodal sogclr': (lambda: SogCLRLoss(**OWN, tau=0.3, bimodal=True), FIXED, True),
}


class Loops:
    """iSogCLR by dictionaries, one anchor after the other."""

    def __init__(self, config, modalities):
        defaults = dict(rho=0.3, tau_init=0.7, tau0=0.05, tau_max=1.0, beta0=0.7, beta1=0.9)
        self.config = {**defaults, **config}
        self.modalities = modalities
        self.s, self.u, self.tau = {}, {}, {}

    def loss(self, views, ids):
        c, views = self.config, [normalize(x, dim=1) for x in views]
        total, news = 0, {}
        for v in range(2):
            side = v if self.modalities else 0
            for i, sample in enumerate(ids):
                key = (side, sample)
                tau = self.tau.get(key, c['tau_init'])
                own = views[v][i] @ views[1 - v][i]
                keys = [
                    views[w][j]
                    for w in ((1 - v,) if self.modalities else (0, 1))
                    for j in range(len(ids))
                    if ids[j] != sample
                ]
                if not keys:
                    continue
                h = torch.stack([views[v][i] @ z - own for z in keys])
                g = (h / tau).exp().mean()
                old = self.s.get(key, g.item())
                s = (1 - c['beta0']) * old + c['beta0'] * g.item()
                surrogate = tau / s * g
                value = tau * math.log(s) + (tau - c['tau0']) * c['rho']
                total = total + value + surrogate - surrogate.detach()
                dg = -(h * (h / tau).exp()).mean().item() / tau**2
                gradient = tau / s * dg + math.log(s) + c['rho']
                news.setdefault(key, []).append((g.item(), gradient))
        for key, pairs in news.items():
            g, gradient = (sum(x) / len(x) for x in zip(*pairs))
            clip = c.get('gradient_clip', math.inf)
            gradient = min(max(gradient, -clip), clip)
            old = self.s.get(key, g)
            self.s[key] = (1 - c['beta0']) * old + c['beta0'] * g
            u = (1 - c['beta1']) * self.u.get(key, 0) + c['beta1'] * gradient
            tau = self.tau.get(key, c['tau_init']) - c['eta'] * u
            self.u[key] = u
            self.tau[key] = min(max(tau, c['tau0']), c['tau_max'])
        return total / len(ids) / (1 if self.modalities else 2)


BATCHES = [[0, 3, 5, 9, 11], [3, 9, 1, 2], [9, 3, 3, 0, 7, 9], [3, 4], [9, 3]]


@pytest.mark.parametrize('name', KINDS)
def test_equal_to_the_loops(name):
    """Values and gradients, and what is kept of each sample."""
    build, config, bimodal = KINDS[name]
    loss, loops = build(), Loops(config, bimodal)
    for step, ids in enumerate(BATCHES):
        views = [x.requires_grad_() for x in two_views(len(ids), step)]
        found = loss(*views, torch.tensor(ids))
        assert_same_gradients(found, loops.loss(views, ids), views, rtol=1e-5, atol=2e-6)
    if config is FIXED:
        return
    for side, state in enumerate(loss.states()):
        kept = [(state.log_s.exp(), loops.s), (state.u, loops.u), (state.tau, loops.tau)]
        for held, expected in kept:
            values = {k: v for (of, k), v in expected.items() if of == side}
            found = held[[*values]].flatten().tolist()
            assert found == pytest.approx([*values.values()], rel=1e-5, abs=1e-6)
        assert {*state.log_s.isfinite().nonzero()[:, 0].tolist()} == {*values}
    assert len({round(x, 4) for x in loops.tau.values()}) > 5


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float])
@pytest.mark.parametrize('scale', [1e-4, 1.0, 1e3])
@pytest.mark.parametrize('kind', [ISogCLRLoss, BimodalISogCLRLoss])
def test_finite_at_the_smallest_temperature(kind, dtype, scale):
    loss = kind(num_samples=16, rho=6.0, tau_init=0.005, tau0=0.005, eta=0.05)
    for step in range(4):
        views = [(scale * x).to(dtype) for x in two_views(16, step, 32)]
        # The worst case: the positive at -1, a negative at +1.
        views[0][0] = views[0][1] = views[1][3]
        views[1][0] = -views[1][3]
        views = [x.requires_grad_() for x in views]
        value = loss(*views, torch.arange(16))
        assert value.dtype == torch.float32
        grads = torch.autograd.grad(value, views)
        assert all(x.isfinite().all() for x in (value, *grads))
    for state in loss.states():
        assert state.table.isfinite().all()
        assert state.log_s.max() > 10


def test_defaults_are_those_of_the_paper():
    loss = BimodalISogCLRLoss(10)
    assert (loss.rho, loss.tau0) == (6.0, 0.005)
    assert loss.image_temperature.tau[0] == pytest.approx(0.01)
    loss = ISogCLRLoss(10)
    assert loss.temperature.tau[0] == pytest.approx(0.7)
    assert loss.tau0 == 0.05


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
    loss = TaUSimCLRLoss(tau=0.5)
    assert_same_gradients(loss(*leaves), simclr_with_temperatures(*leaves, 0.5), leaves)
    # A value of the authors' code.
    temperature = loss.temperatures(torch.tensor([[1.0, 0.0, 3.0]]))
    assert float(1 / temperature) == pytest.approx(1.905, abs=5e-4)


def test_tau_simclr_is_finite_at_any_uncertainty():
    loss = TaUSimCLRLoss(tau=0.5)
    one, two = two_views(3, dim=4)
    one[:, -1] = -1e6
    two[:, -1] = 1e6
    assert loss(one.float(), two.float()).isfinite()
    assert loss.diagnostics['tau_min'] == pytest.approx(0.5)


def test_gain_of_a_visit_is_noted():
    loss = ISogCLRLoss(num_samples=4, rho=0.3, tau_init=0.5, eta=0.1)
    loss(*two_views(4, dim=3), torch.arange(4))
    assert loss.diagnostics['tau_gain'] == pytest.approx(2 * 0.1 * 0.3 / 0.5)


NUM_SAMPLES, WIDTH = 20, 6


def batches(steps=5, size=8):
    """Images, texts and their samples; each pair is more alike than others."""
    g = torch.Generator().manual_seed(1)
    for _ in range(steps):
        images, noise = torch.randn(2, size, WIDTH, generator=g, dtype=torch.float64)
        pair = images, images + 0.8 * noise
        ids = torch.randperm(NUM_SAMPLES, generator=g)[:size]
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


def assert_close_gradients(loss, expected, inputs):
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
    loss = TempNetLoss(NUM_SAMPLES, WIDTH, rho, 0.1, 0.5, prototypes=7, dropout=0.0)
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
        assert_close_gradients(found, expected / len(ids), [*views, *loss.parameters()])


def test_tempnet_drops_in_training_alone():
    loss = TempNetLoss(NUM_SAMPLES, WIDTH, tau_min=0.1, tau_max=0.5)
    (views, ids), *_ = batches()
    for mode, number in ((False, 1), (True, 3)):
        loss.train(mode)
        taus = []
        for _ in range(3):
            loss(*views, ids)
            taus.append(loss.diagnostics['image_tau'].item())
        assert len({*taus}) == number
        assert all(0.1 < tau < 0.5 for tau in taus)


def test_nuclr_steps_as_its_formula():
    """Loss, averages and margins, which rise where softmaxes give a text more than its share."""
    tau, eta = 0.2, 0.1
    loss = NUCLRLoss(NUM_SAMPLES, tau, eta)
    states = [loss.image_margin, loss.text_margin]
    zetas = torch.full((2, NUM_SAMPLES), -0.05, dtype=torch.float64)
    slopes = [{}, {}]
    averages = [{}, {}]
    rest = 1 / (NUM_SAMPLES - 1)
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
        assert_close_gradients(found, expected / size, views)
        for k, rate in enumerate((eta / 10, eta)):
            for i, sample in enumerate(ids.tolist()):
                new = 1 - popularity[k, i] * NUM_SAMPLES * rest
                slopes[k][sample] = moved_average(slopes[k].get(sample), new, 0.9)
                zetas[k, sample] -= rate * slopes[k][sample]
            torch.testing.assert_close(states[k].zeta.double(), zetas[k], rtol=1e-5, atol=1e-6)
