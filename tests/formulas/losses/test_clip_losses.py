"""CLIP, CyCLIP, SogCLR of two modalities and SigLIP against their definitions."""

import math

import pytest
import torch
from subjects import assert_same_gradients, two_views
from torch.nn.functional import cross_entropy, normalize

from mmrank.losses import CLIPLoss, CyCLIPLoss, IndividualCLIPLoss, SigLIPLoss, SogCLRLoss
from mmrank.losses.contrastive import terms as log_mean_exp
from mmrank.losses.contrastive.base import ContrastedBatch
from mmrank.losses.contrastive.cyclip import _cyclic_consistency
from mmrank.losses.contrastive.siglip import sigmoid_losses
from mmrank.losses.contrastive.terms import Samples


def clip(images, texts, image_tau, text_tau, ids=None):
    """With one temperature, or (n, 1) of the anchors; what is of one image is no negative."""
    scores = normalize(images, dim=1) @ normalize(texts, dim=1).t()
    own = torch.arange(len(texts))
    ids = own if ids is None else ids
    is_left_out = (ids[:, None] == ids) & (own[:, None] != own)
    of_images = cross_entropy((scores / image_tau).masked_fill(is_left_out, -math.inf), own)
    of_texts = cross_entropy((scores.t() / text_tau).masked_fill(is_left_out, -math.inf), own)
    return (of_images + of_texts) / 2


def inconsistencies(images, texts, all_images, all_texts):
    """(2, n) of each pair, across the modalities and within them."""
    cross = images @ all_texts.t() - texts @ all_images.t()
    within = images @ all_images.t() - texts @ all_texts.t()
    return torch.stack([cross, within]).square().sum(2)


@pytest.mark.parametrize('ids', [[0, 1, 2, 3], [5, 5, 1, 2]])
def test_clip_and_the_gradient_of_its_temperature(ids):
    loss = CLIPLoss(tau=0.3, loss_weight=2.0).double()
    views = [x.requires_grad_() for x in two_views(4)]
    tau = loss.log_tau.exp()
    expected = 2 * clip(*views, tau, tau, torch.tensor(ids))
    assert loss.log_tau.item() == pytest.approx(math.log(0.3))
    assert_same_gradients(loss(*views, torch.tensor(ids)), expected, [*views, loss.log_tau])


def test_temperature_is_learned_within_its_bounds():
    # Matching pairs make it small, other pairs make it large.
    for aligned, end in ((True, 0.1), (False, 2.0)):
        loss = CLIPLoss(tau=0.5, tau_min=0.1, tau_max=2.0)
        optimizer = torch.optim.SGD(loss.parameters(), lr=1.0)
        view = two_views(6, dim=16)[0]
        other = view if aligned else view.roll(1, 0)
        for _ in range(60):
            optimizer.zero_grad()
            loss(view, other).backward()
            optimizer.step()
        loss(view, other)
        assert loss.diagnostics['tau'].item() == pytest.approx(end)
        # It comes back from there.
        for _ in range(3):
            optimizer.zero_grad()
            loss(view, view.roll(1, 0) if aligned else view).backward()
            optimizer.step()
        assert abs(math.log(loss.temperature().item() / end)) > 0.1


@pytest.mark.parametrize('dim', [1, 5])  # without the matrix of all pairs, and with it
@pytest.mark.parametrize('columns', [0, 13])  # other pairs than those of the batch
def test_gradient_of_cyclic_consistency(dim, columns):
    inputs = [x.requires_grad_() for x in two_views(9, dim=dim)]
    if columns:
        inputs += [x.requires_grad_() for x in two_views(columns, 1, dim=dim)]
    images, texts = inputs[:2]
    all_images, all_texts = inputs[-2:]
    expected = inconsistencies(images, texts, all_images, all_texts)
    ids = torch.arange(9)
    local, gathered = Samples([images, texts], ids), Samples([all_images, all_texts], ids)
    got = _cyclic_consistency(ContrastedBatch(local, gathered if columns else local, [9]))
    assert_same_gradients(torch.stack([*got]), expected, inputs)


def test_small_inconsistencies_are_not_rounded_away():
    images = normalize(two_views(30, dim=8)[0], dim=1)
    texts = normalize(images + 1e-4 * two_views(30, 1, dim=8)[0], dim=1)
    views = images.float(), texts.float()
    exact = [x.double() for x in views]
    both = [_cyclic_consistency(ContrastedBatch.of_views(x)) for x in (views, exact)]
    for got, want in zip(*both):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=0)


def test_cyclip_is_clip_and_consistency():
    views = [normalize(x, dim=1).requires_grad_() for x in two_views(6)]
    loss = CyCLIPLoss(tau=0.3).double()
    loss.cross_weight = 0.5
    loss.in_weight = 0.2
    got = loss(*views)
    cross, within = inconsistencies(*views, *views)
    expected = clip(*views, 0.3, 0.3) + 0.5 * cross.mean() + 0.2 * within.mean()
    torch.testing.assert_close(got, expected)


def test_individual_clip_and_the_gradient_of_each_temperature():
    loss = IndividualCLIPLoss(num_samples=9, tau=0.3).double()
    with torch.no_grad():
        loss.image_tau += torch.linspace(0, 0.2, 9)
        loss.text_tau += torch.linspace(0.1, 0, 9)
    idx = torch.tensor([7, 2, 0, 5])
    views = [x.requires_grad_() for x in two_views(4, dim=3)]
    got = loss(*views, idx)
    expected = clip(*views, loss.image_tau[idx, None], loss.text_tau[idx, None])
    assert_same_gradients(got, expected, [*views, loss.image_tau, loss.text_tau])
    assert torch.autograd.grad(got, loss.image_tau)[0].count_nonzero() == 4


@pytest.mark.parametrize('bimodal', [True, False])
def test_one_learned_temperature_is_that_of_the_robust_loss(bimodal):
    """FastCLIP (2024): the derivative of ``tau (log mean exp(h/tau) + rho)`` by log tau."""
    loss = SogCLRLoss(12, tau=0.3, rho=0.5, beta0=1.0, bimodal=bimodal).double()
    views = [normalize(x) for x in two_views(7)[:2]]
    value = loss(*views, torch.arange(7))
    (got,) = torch.autograd.grad(value, loss.log_tau)
    tau = loss.log_tau.detach().exp().requires_grad_()
    others = ~torch.eye(7, dtype=torch.bool)
    total = 0.0
    for i in range(7):
        for own, other in (views, views[::-1]):
            keys = [other[others[i]]] + ([] if bimodal else [own[others[i]]])
            h = torch.cat(keys) @ own[i] - own[i] @ other[i]
            total = total + tau * ((h / tau).exp().mean().log() + 0.5)
    total = total.squeeze() / 7 / (1 if bimodal else 2)
    torch.testing.assert_close(value, total, rtol=1e-6, atol=1e-7)
    (expected,) = torch.autograd.grad(total, tau)
    torch.testing.assert_close(got, expected * tau.detach(), rtol=1e-6, atol=1e-7)


LEARNED = [CLIPLoss(), SigLIPLoss(), SogCLRLoss(9, rho=7.0)]


@pytest.mark.parametrize('loss', LEARNED, ids=lambda x: type(x).__name__)
def test_learned_scalars_are_float32_of_shape_1(loss):
    learned = dict(loss.named_parameters())
    try:
        torch.set_default_dtype(torch.bfloat16)
        again = type(loss)(**({'num_samples': 9, 'rho': 7.0} if loss.keeps_samples else {}))
    finally:
        torch.set_default_dtype(torch.float32)
    for name, value in again.named_parameters():
        assert value.dtype == torch.float32
        assert value.shape == (1,)  # fully_shard takes no parameter of shape ()
        assert torch.equal(value, learned[name])


@pytest.mark.parametrize('kind', [CLIPLoss, SigLIPLoss])
def test_a_fixed_temperature_is_no_tensor(kind):
    views = two_views(5)
    loss = kind(tau=0.3, learnable=False)
    expected = loss(*views)
    moved = kind(tau=0.3, learnable=False).to('meta').to_empty(device='cpu').half()
    assert not moved.state_dict()
    assert not [*moved.parameters(), *moved.buffers()]
    assert torch.equal(moved(*views), expected)


def siglip_loops(images, texts, t, b, ids=None):
    """Equation of section 3.2, without what is of the same sample."""
    ids = list(range(len(images))) if ids is None else ids
    losses = []
    for i, x in enumerate(images):
        total = 0
        for j, y in enumerate(texts):
            if i != j and ids[i] == ids[j]:
                continue
            z = 1 if i == j else -1
            total = total - (1 / (1 + (-z * (t * (x @ y) + b)).exp())).log()
        losses.append(total)
    return torch.cat(losses)


@pytest.mark.parametrize('least', [1, 10**6])
@pytest.mark.parametrize('ids', [None, [3, 1, 3, 0, 5, 1, 3]])
def test_siglip_equals_loops(monkeypatch, least, ids):
    monkeypatch.setattr(log_mean_exp, '_LEAST_ENTRIES', least)
    loss = SigLIPLoss(tau=0.5, loss_weight=3.0).double()
    loss.logit_bias.data.fill_(-2.0)
    views = [x.requires_grad_() for x in two_views(7)]
    unit = [normalize(x, dim=1) for x in views]
    expected = 3 * siglip_loops(*unit, loss.log_scale.exp(), loss.logit_bias, ids).mean()
    index = () if ids is None else (torch.tensor(ids),)
    inputs = [*views, *loss.parameters()]
    assert_same_gradients(loss(*views, *index), expected, inputs, rtol=1e-12, atol=1e-12)
    assert loss.diagnostics['tau'].item() == pytest.approx(0.5)
    assert loss.diagnostics['bias'].item() == -2
    # Images and texts may be swapped.
    torch.testing.assert_close(loss(*views[::-1], *index), expected)


def test_start_of_the_paper():
    """Nearly all pairs of a batch are negative, and b starts there."""
    loss = SigLIPLoss()
    assert loss.log_scale.item() == pytest.approx(math.log(10))
    assert loss.logit_bias.item() == -10
    assert {x for x, _ in loss.named_parameters()} == {'log_scale', 'logit_bias'}
    fixed = SigLIPLoss(learnable=False)
    torch.testing.assert_close(fixed(*two_views(5)), loss(*two_views(5)).detach())


def test_large_logits_keep_their_digits():
    """Softplus of torch rounds above 20, exp overflows above 700."""
    views = [20 * x for x in two_views(5)]
    exact = [normalize(x, dim=1) for x in views]
    for t in (30.0, 5000.0):
        losses = sigmoid_losses(ContrastedBatch.of_views(exact), t, -7.0)
        scores = t * exact[0] @ exact[1].t() - 7
        z = 2 * torch.eye(5).double() - 1
        # log(1 + e^x) = x + log(1 + e^-x).
        x = -z * scores
        want = x.clamp(min=0) + (-x.abs()).exp().log1p()
        torch.testing.assert_close(losses, want.sum(1), rtol=1e-12, atol=0)
