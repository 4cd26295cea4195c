"""Losses of two views and of images and texts against their formulas: values and gradients."""

import math
from functools import partial

import pytest
import torch
from subjects import assert_same_gradients, two_views
from torch.nn.functional import cross_entropy, logsigmoid, normalize

from mmrank.losses import (
    BarlowTwinsLoss,
    CLIPLoss,
    CyCLIPLoss,
    FlatCLRLoss,
    IndividualCLIPLoss,
    InfoNCELoss,
    SigLIPLoss,
    SimCoLoss,
    SogCLRLoss,
    SpectralContrastiveLoss,
    VICRegLoss,
)
from mmrank.losses.contrastive import terms
from mmrank.losses.contrastive.base import ContrastedBatch
from mmrank.losses.contrastive.cyclip import _cyclic_consistency
from mmrank.losses.contrastive.terms import Samples


def similarities(views, ids, both):
    """(n, m) cosines of anchors, (n,) those with their positives, and which are with negatives.

    An anchor has negatives in both views, or in the other one alone.
    """
    one, other = (normalize(x, dim=1) for x in views)
    positive = (one * other).sum(1).repeat(2)
    rows = torch.cat([one, other])
    is_other = (ids[:, None] != ids).repeat(2, 1)
    if both:
        return rows @ rows.t(), positive, is_other.repeat(1, 2)
    return torch.cat([one @ other.t(), other @ one.t()]), positive, is_other


def flat(views, ids, both):
    """The paper's loss is always 1, and its gradient that of the logarithm, which is the value."""
    scores, positive, is_other = similarities(views, ids, both)
    z = (((scores - positive[:, None]) / 0.3).exp() * is_other).sum(1)
    return z.detach().log().mean(), (z / z.detach()).mean()


def info_nce(views, ids, both):
    """The negatives alone are weighed by their hardness."""
    scores, positive, is_other = similarities(views, ids, both)
    negatives = (scores / 0.3 + 9 * scores.detach()).masked_fill(~is_other, -torch.inf)
    logits = torch.cat([positive[:, None] / 0.3, negatives], 1)
    return -logits.log_softmax(1)[:, 0].mean()


def simco(views, ids, both):
    scores, positive, is_other = similarities(views, ids, both)
    negatives = scores.masked_fill(~is_other, -torch.inf)
    logits = torch.cat([positive[:, None], negatives], 1)
    intra = (logits / 0.2).softmax(1)[:, 0]
    inter = (logits / (1.0 if both else 0.9)).softmax(1)[:, 0]
    return ((1 - inter) / (1 - intra)).detach() @ -intra.log() / len(intra)


def spectral(views, ids):
    one, other = (x * (math.sqrt(3) / x.norm(dim=1, keepdim=True)).clamp(max=1) for x in views)
    scores = one @ other.t()
    is_other = ids[:, None] != ids
    negatives = (scores.square() * is_other).sum(1) / is_other.sum(1)
    return (negatives - 2 * scores.diagonal()).mean() / 3


def vicreg(views, ids):
    n, d = views[0].shape
    value = 3 * (views[0] - views[1]).square().mean()
    for view in views:
        centred = view - view.mean(0)
        covariance = centred.t() @ centred / (n - 1)
        variances = covariance.diagonal()
        value = value + (1 - (variances + 1e-4).sqrt()).relu().mean()
        value = value + 1.5 * (covariance.square().sum() - variances.square().sum()) / d
    return value


def barlow(views, ids):
    x, y = ((v - v.mean(0)) / (v.var(0, correction=0) + 1e-5).sqrt() for v in views)
    correlation = x.t() @ y / len(ids)
    own = correlation.diagonal()
    return (1 - own).square().sum() + 0.2 * (correlation.square().sum() - own.square().sum())


def is_of_another(ids):
    """(n, n) whether an image and a text are negatives: the rest but a pair is left out."""
    return ids[:, None] != ids


def clip(views, ids, image_tau, text_tau):
    """With one temperature, or (n, 1) of the anchors."""
    images, texts = (normalize(x, dim=1) for x in views)
    own = torch.arange(len(texts))
    is_left_out = ~is_of_another(ids) & (own[:, None] != own)
    scores = images @ texts.t()
    of_images = cross_entropy((scores / image_tau).masked_fill(is_left_out, -math.inf), own)
    of_texts = cross_entropy((scores.t() / text_tau).masked_fill(is_left_out, -math.inf), own)
    return (of_images + of_texts) / 2


def inconsistencies(images, texts, all_images, all_texts):
    """(2, n) of each pair, across the modalities and within them."""
    cross = images @ all_texts.t() - texts @ all_images.t()
    within = images @ all_images.t() - texts @ all_texts.t()
    return torch.stack([cross, within]).square().sum(2)


def cyclip(views, ids, tau):
    unit = [normalize(x, dim=1) for x in views]
    cross, within = inconsistencies(*unit, *unit)
    return clip(views, ids, tau, tau) + 0.5 * cross.mean() + 0.2 * within.mean()


def siglip(views, ids, t, b):
    """Equation of section 3.2."""
    images, texts = (normalize(x, dim=1) for x in views)
    logits = t * images @ texts.t() + b
    negatives = logsigmoid(-logits) * is_of_another(ids)
    return -(logsigmoid(logits.diagonal()) + negatives.sum(1)).mean()


CLIP = CLIPLoss(0.3, loss_weight=2.0).double()
CYCLIP = CyCLIPLoss(0.3).double()
SIGLIP = SigLIPLoss(0.5, loss_weight=3.0).double()
SIGLIP.logit_bias.data.fill_(-2.0)
INDIVIDUAL = IndividualCLIPLoss(num_samples=10, tau=0.3).double()
INDIVIDUAL.image_tau.data += torch.linspace(0, 0.2, 10)
INDIVIDUAL.text_tau.data += torch.linspace(0.1, 0, 10)


def individual_clip(views, ids):
    return clip(views, ids, INDIVIDUAL.image_tau[ids, None], INDIVIDUAL.text_tau[ids, None])


#: A loss, constants of its class that are not those of the paper, and its definition; of FlatCLR
#: the value, and a scalar with the right gradient.
CASES = {
    'flat': (FlatCLRLoss(0.3), {}, partial(flat, both=True)),
    'flat_bimodal': (FlatCLRLoss(0.3, bimodal=True), {}, partial(flat, both=False)),
    'info_nce': (InfoNCELoss(0.3, hardness_strength=9.0), {}, partial(info_nce, both=True)),
    'info_nce_bimodal': (
        InfoNCELoss(0.3, bimodal=True, hardness_strength=9.0),
        {},
        partial(info_nce, both=False),
    ),
    'simco': (SimCoLoss(0.2), dict(tau_inter=0.9), partial(simco, both=False)),
    'simco_both': (SimCoLoss(0.2, bimodal=False), {}, partial(simco, both=True)),
    'spectral': (SpectralContrastiveLoss(), dict(mu=3.0), spectral),
    'vicreg': (VICRegLoss(), dict(invariance=3.0, variance=2.0, covariance=1.5), vicreg),
    'barlow': (BarlowTwinsLoss(), dict(off_diagonal=0.2), barlow),
    'clip': (CLIP, {}, lambda *x: 2 * clip(*x, *[CLIP.log_tau.exp()] * 2)),
    'individual clip': (INDIVIDUAL, {}, individual_clip),
    'cyclip': (
        CYCLIP,
        dict(cross_weight=0.5, in_weight=0.2),
        lambda *x: cyclip(*x, CYCLIP.log_tau.exp()),
    ),
    'siglip': (SIGLIP, {}, lambda *x: 3 * siglip(*x, SIGLIP.log_scale.exp(), SIGLIP.logit_bias)),
}


@pytest.mark.parametrize('dim', [3, 9])  # fewer and more columns than rows
@pytest.mark.parametrize('name', CASES)
def test_loss_and_gradient_equal_the_formula(name, dim, monkeypatch):
    """Also the gradients of temperatures; some losses make no matrix of few pairs."""
    monkeypatch.setattr(terms, '_LEAST_ENTRIES', 1 if dim == 3 else 10**6)
    loss, constants, formula = CASES[name]
    for key, value in constants.items():
        monkeypatch.setattr(loss, key, value)
    ids = torch.tensor([4, 1, 9, 1, 0, 7])
    views = [x.requires_grad_() for x in two_views(6, 3, dim)]
    found, expected = loss(*views, ids), formula(views, ids)
    value, surrogate = expected if isinstance(expected, tuple) else (expected, expected)
    torch.testing.assert_close(found, value, rtol=1e-9, atol=1e-11)
    leaves = [*views, *loss.parameters()]
    slopes = [torch.autograd.grad(x, leaves) for x in (found, surrogate)]
    torch.testing.assert_close(*slopes, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float])
def test_simco_is_finite_where_the_ratio_overflows(dtype):
    # Opposite pairs: 1 - p is exp(-400) at the small temperature.
    view = torch.tensor([[1.0, 0], [-1, 0]], dtype=dtype).requires_grad_()
    loss = SimCoLoss(tau=0.005)
    loss.tau_inter = 0.01
    value = loss(view, view)
    (grad,) = torch.autograd.grad(value, view)
    assert value.dtype == torch.float32
    assert value.isfinite()
    assert grad.isfinite().all()


def test_wide_embeddings_need_no_matrix_of_columns():
    # 30,000 columns: their matrix would take 3.6 GB.
    view1, view2 = torch.randn(2, 4, 30000).unbind()
    for loss in (VICRegLoss(), BarlowTwinsLoss()):
        assert loss(view1, view2).isfinite()


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


def test_start_of_the_paper():
    """Nearly all pairs of a batch are negative, and b starts there."""
    loss = SigLIPLoss()
    assert loss.log_scale.item() == pytest.approx(math.log(10))
    assert loss.logit_bias.item() == -10
    assert {x for x, _ in loss.named_parameters()} == {'log_scale', 'logit_bias'}
    fixed = SigLIPLoss(learnable=False)
    torch.testing.assert_close(fixed(*two_views(5)), loss(*two_views(5)).detach())
    assert loss.diagnostics['tau'].item() == pytest.approx(0.1)
    assert loss.diagnostics['bias'] == -10


def test_large_logits_keep_their_digits():
    """Softplus of torch rounds above 20, exp overflows above 700."""
    views = [20 * x for x in two_views(5)]
    exact = [normalize(x, dim=1) for x in views]
    for t in (30.0, 5000.0):
        loss = SigLIPLoss(tau=1 / t, learnable=False)
        losses = loss.row_losses(ContrastedBatch.of_views(exact))
        scores = t * exact[0] @ exact[1].t() - 10
        z = 2 * torch.eye(5).double() - 1
        # log(1 + e^x) = x + log(1 + e^-x).
        x = -z * scores
        want = x.clamp(min=0) + (-x.abs()).exp().log1p()
        torch.testing.assert_close(losses, want.sum(1), rtol=1e-12, atol=0)
