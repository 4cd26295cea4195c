"""FlatCLR, SimCo, spectral, VICReg and Barlow Twins against their formulas."""

import math
from functools import partial

import pytest
import torch
from subjects import two_views
from torch.nn.functional import normalize

from mmrank.losses import (
    BarlowTwinsLoss,
    FlatCLRLoss,
    SimCoLoss,
    SpectralContrastiveLoss,
    VICRegLoss,
)


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


#: A loss, constants of its class that are not those of the paper, and its definition; of FlatCLR
#: the value, and a scalar with the right gradient.
CASES = {
    'flat': (FlatCLRLoss(0.3), {}, partial(flat, both=True)),
    'flat_bimodal': (FlatCLRLoss(0.3, bimodal=True), {}, partial(flat, both=False)),
    'simco': (SimCoLoss(0.2), dict(tau_inter=0.9), partial(simco, both=False)),
    'simco_both': (SimCoLoss(0.2, bimodal=False), {}, partial(simco, both=True)),
    'spectral': (SpectralContrastiveLoss(), dict(mu=3.0), spectral),
    'vicreg': (VICRegLoss(), dict(invariance=3.0, variance=2.0, covariance=1.5), vicreg),
    'barlow': (BarlowTwinsLoss(), dict(off_diagonal=0.2), barlow),
}


@pytest.mark.parametrize('dim', [3, 9])  # fewer and more columns than rows
@pytest.mark.parametrize('name', CASES)
def test_loss_and_gradient_equal_the_formula(name, dim, monkeypatch):
    loss, constants, formula = CASES[name]
    for key, value in constants.items():
        monkeypatch.setattr(loss, key, value)
    ids = torch.tensor([4, 1, 9, 1, 0, 7])
    views = [x.requires_grad_() for x in two_views(6, 3, dim)]
    found, expected = loss(*views, ids), formula(views, ids)
    value, surrogate = expected if isinstance(expected, tuple) else (expected, expected)
    torch.testing.assert_close(found, value, rtol=1e-9, atol=1e-11)
    slopes = [torch.autograd.grad(x, views) for x in (found, surrogate)]
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
