"""The registered contrastive losses against loops with dictionaries."""

import math

import pytest
import torch
from random_batches import assert_same_gradients, two_views
from torch.nn.functional import cross_entropy, normalize, one_hot

from mmrank.losses import BimodalISogCLRLoss, FlatCLRLoss, ISogCLRLoss, SogCLRLoss
from mmrank.registry import MODELS

SAMPLES = 12
LOSSES = {
    'info_nce': dict(type='InfoNCELoss', tau=0.3),
    'clip': dict(type='InfoNCELoss', tau=0.3, bimodal=True),
    'sogclr': dict(type='SogCLRLoss', num_samples=SAMPLES, tau=0.3),
    'isogclr': dict(type='ISogCLRLoss', num_samples=SAMPLES, eta=0.05, beta0=0.7),
    'bimodal': dict(
        type='BimodalISogCLRLoss',
        num_samples=SAMPLES,
        rho=0.4,
        tau_init=0.3,
        tau0=0.05,
        tau_max=2.0,
        eta=0.05,
        beta0=0.7,
        beta1=0.6,
    ),
}


def build(name, **kwargs):
    config = {**LOSSES[name], **kwargs}
    return MODELS.build({**config, 'type': 'mmrank.' + config['type']})


class Loops:
    """iSogCLR by dictionaries, one anchor after the other."""

    def __init__(self, config, modalities):
        self.config = {
            'rho': 0.3,
            'tau_init': 0.7,
            'tau0': 0.05,
            'tau_max': 1.0,
            'beta1': 0.9,
            **config,
        }
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
            old = self.s.get(key, g)
            self.s[key] = (1 - c['beta0']) * old + c['beta0'] * g
            u = (1 - c['beta1']) * self.u.get(key, 0) + c['beta1'] * gradient
            tau = self.tau.get(key, c['tau_init']) - c['eta'] * u
            self.u[key] = u
            self.tau[key] = min(max(tau, c['tau0']), c['tau_max'])
        return total / len(ids) / (1 if self.modalities else 2)


BATCHES = [[0, 3, 5, 9, 11], [3, 9, 1, 2], [9, 3, 3, 0, 7, 9], [3, 4], [9, 3]]


@pytest.mark.parametrize('name', ['isogclr', 'bimodal'])
def test_isogclr_equals_loops(name):
    loss = build(name, loss_weight=2.0)
    config = {k: v for k, v in LOSSES[name].items() if k != 'type'}
    loops = Loops(config, name == 'bimodal')
    for step, ids in enumerate(BATCHES):
        views = [x.requires_grad_() for x in two_views(len(ids), step)]
        got = loss(*views, torch.tensor(ids))
        expected = 2 * loops.loss(views, ids)
        assert got.item() == pytest.approx(expected.item(), abs=2e-6)
        grads = torch.autograd.grad(got, views)
        torch.testing.assert_close(
            grads, torch.autograd.grad(expected, views), rtol=1e-5, atol=1e-6
        )
    for side, state in enumerate(loss.states()):
        for quantity in ('s', 'u', 'tau'):
            held = state.log_s.exp() if quantity == 's' else None
            held = getattr(state, quantity) if held is None else held
            for (of, sample), value in getattr(loops, quantity).items():
                if of == side:
                    assert held[sample].item() == pytest.approx(value, rel=1e-5, abs=1e-6)
        visited = {sample for of, sample in loops.s if of == side}
        assert set(state.seen.nonzero()[:, 0].tolist()) == visited
    assert len({round(x, 4) for x in loops.tau.values()}) > 5


def test_sogclr_is_isogclr_that_does_not_learn():
    views = [x.requires_grad_() for x in two_views(6)]
    ids = torch.arange(6)
    fixed = SogCLRLoss(SAMPLES, tau=0.3, beta0=0.7)
    loops = Loops(dict(tau_init=0.3, rho=0, beta0=0.7, eta=0, tau_max=9), False)
    for _ in range(2):
        got, expected = fixed(*views, ids), loops.loss(views, ids.tolist())
        assert_same_gradients(got, expected, views, rtol=1e-6, atol=1e-7)


def test_gradient_is_tau_times_info_nce():
    views = [x.requires_grad_() for x in two_views(6)]
    ids = torch.arange(6)
    loss = SogCLRLoss(SAMPLES, tau=0.2, beta0=1.0)
    for seed in range(2):  # the state of an earlier batch has no effect
        loss(*two_views(6, 7 + seed), ids)
    got = torch.autograd.grad(loss(*views, ids), views)
    info_nce = FlatCLRLoss(tau=0.2)(*views)
    torch.testing.assert_close(got, torch.autograd.grad(0.2 * info_nce, views))


@pytest.mark.parametrize('strength', [0.0, 9.0])
def test_info_nce_is_cross_entropy(strength):
    views = [x.requires_grad_() for x in two_views(6)]

    def check(name, expected):
        found = build(name, hardness_strength=strength)(*views)
        assert_same_gradients(found, expected, views)

    def logits(cosines, target):
        # The negatives alone are weighed by their hardness.
        is_negative = 1 - one_hot(target, len(target))
        return cosines / 0.3 + strength * (cosines * is_negative).detach()

    rows, target = normalize(torch.cat(views), dim=1), torch.arange(12).roll(6)
    both = logits(rows @ rows.t(), target).fill_diagonal_(-math.inf)
    check('info_nce', cross_entropy(both, target))
    (images, texts), target = rows.chunk(2), torch.arange(6)
    sides = logits(images @ texts.t(), target), logits(texts @ images.t(), target)
    check('clip', sum(cross_entropy(x, target) for x in sides) / 2)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float])
@pytest.mark.parametrize('scale', [1e-4, 1.0, 1e3])
@pytest.mark.parametrize('name', ['isogclr', 'bimodal'])
def test_finite_at_the_smallest_temperature(name, dtype, scale):
    loss = build(name, rho=6.0, tau_init=0.005, tau0=0.005, num_samples=16)
    for step in range(4):
        views = [(scale * x).to(dtype) for x in two_views(16, step, 32)]
        # The worst case: the positive at -1, a negative at +1.
        views[0][0], views[0][1], views[1][0] = (views[1][3], views[1][3], -(views[1][3]))
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
