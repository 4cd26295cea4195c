"""CLIP, CyCLIP and SogCLR of two modalities against their definitions."""

import math

import pytest
import torch
from random_batches import assert_same_gradients, two_views
from torch.nn.functional import cross_entropy, normalize

from mmrank.losses import BimodalISogCLRLoss, CLIPLoss, SigLIPLoss, SogCLRLoss
from mmrank.losses.contrastive.cyclip import _cyclic_consistency
from mmrank.registry import MODELS

LOSSES = {
    'clip': dict(type='mmrank.CLIPLoss', tau=0.3),
    'fixed': dict(type='mmrank.CLIPLoss', tau=0.3, learnable=False),
    'cyclip': dict(type='mmrank.CyCLIPLoss', tau=0.3),
    'sogclr': dict(type='mmrank.SogCLRLoss', num_samples=12, tau=0.3, bimodal=True),
}


def build(name, **kwargs):
    loss = MODELS.build({**LOSSES[name], **kwargs})
    if name == 'cyclip':
        loss.cross_weight = 0.5
        loss.in_weight = 0.2
    return loss


def clip(images, texts, log_tau):
    images, texts = normalize(images, dim=1), normalize(texts, dim=1)
    logits, own = images @ texts.t() / log_tau.exp(), torch.arange(len(texts))
    return (cross_entropy(logits, own) + cross_entropy(logits.t(), own)) / 2


def loops(images, texts):
    n, dot = len(images), lambda x, y: float((x * y).sum())
    cross = torch.zeros(n, dtype=torch.float64)
    within = cross.clone()
    for j in range(n):
        for k in range(n):
            x = dot(images[j], texts[k]) - dot(images[k], texts[j])
            cross[j] += x * x
            x = dot(images[j], images[k]) - dot(texts[j], texts[k])
            within[j] += x * x
    return cross, within


def test_clip_and_the_gradient_of_its_temperature():
    loss = CLIPLoss(tau=0.3, loss_weight=2.0).double()
    views = [x.requires_grad_() for x in two_views(7)]
    log_tau = torch.tensor([math.log(0.3)]).double().requires_grad_()
    got, expected = loss(*views), 2 * clip(*views, log_tau)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(
        torch.autograd.grad(got, [*views, loss.log_tau]),
        torch.autograd.grad(expected, [*views, log_tau]),
    )


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
    cross = images @ all_texts.t() - texts @ all_images.t()
    within = images @ all_images.t() - texts @ all_texts.t()
    expected = [x.square().sum(1) for x in (cross, within)]
    got = _cyclic_consistency((images, texts), (all_images, all_texts))
    assert_same_gradients(torch.stack([*got]), torch.stack(expected), inputs)


def test_small_inconsistencies_are_not_rounded_away():
    images = normalize(two_views(30, dim=8)[0], dim=1)
    texts = normalize(images + 1e-4 * two_views(30, 1, dim=8)[0], dim=1)
    views = images.float(), texts.float()
    exact = [x.double() for x in views]
    for got, want in zip(_cyclic_consistency(views, views), _cyclic_consistency(exact, exact)):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=0)


def test_cyclip_is_clip_and_consistency():
    views = [normalize(x, dim=1).requires_grad_() for x in two_views(6)]
    got = build('cyclip').double()(*views)
    cross, within = loops(*views)
    expected = clip(*views, torch.tensor(math.log(0.3)).double())
    expected = expected + 0.5 * cross.mean() + 0.2 * within.mean()
    torch.testing.assert_close(got, expected)
    # Rotating both modalities alike changes nothing; swapping them neither.
    turn = torch.linalg.qr(two_views(4)[0]).Q
    loss = build('cyclip').double()
    torch.testing.assert_close(loss(*(x @ turn for x in views)), got)
    torch.testing.assert_close(loss(*views[::-1]), got)


def test_sogclr_of_two_modalities_is_isogclr_that_does_not_learn():
    fixed = build('sogclr', beta0=0.6)
    learned = BimodalISogCLRLoss(12, beta0=0.6, tau_init=0.3, tau0=0.3, tau_max=0.3)
    # The part with rho and tau - tau0 = 0 has no value.
    for seed, ids in enumerate(([0, 3, 5], [3, 9, 5, 1], [5, 3])):
        views = [x.requires_grad_() for x in two_views(len(ids), seed)]
        values = [x(*views, torch.tensor(ids)) for x in (fixed, learned)]
        assert_same_gradients(*values, views)
    for name in ('image', 'text'):
        one = getattr(fixed, f'{name}_average').log_s
        other = getattr(learned, f'{name}_temperature').log_s
        torch.testing.assert_close(one, other)
        assert int(one.isfinite().sum()) == 5
    assert {'image_log_s', 'text_log_s'} < set(fixed.diagnostics)


def test_captions_of_one_image_are_no_negatives():
    images, texts = (normalize(x, dim=1) for x in two_views(4))
    logits, own = images @ texts.t() / 0.3, torch.arange(4)
    logits[0, 1] = logits[1, 0] = -math.inf
    expected = cross_entropy(logits, own) + cross_entropy(logits.t(), own)
    got = build('fixed').double()(images, texts, torch.tensor([5, 5, 1, 2]))
    torch.testing.assert_close(got, expected / 2)


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
def test_learned_scalars_are_float32_of_shape_1_and_earlier_checkpoints_load(loss):
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
    saved = loss.state_dict()
    earlier = {k: x.view(()) + 0.5 if k in learned else x for k, x in saved.items()}
    again.load_state_dict(earlier)
    for name, value in again.named_parameters():
        assert torch.equal(value, learned[name] + 0.5)


@pytest.mark.parametrize('kind', [CLIPLoss, SigLIPLoss])
def test_a_fixed_temperature_is_no_tensor(kind):
    views = two_views(5)
    loss = kind(tau=0.3, learnable=False)
    expected = loss(*views)
    moved = kind(tau=0.3, learnable=False).to('meta').to_empty(device='cpu').half()
    assert not moved.state_dict()
    assert not [*moved.parameters(), *moved.buffers()]
    assert torch.equal(moved(*views), expected)
