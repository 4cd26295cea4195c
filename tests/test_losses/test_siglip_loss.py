"""SigLIP's loss against its definition, pair by pair."""

import math

import pytest
import torch
from random_batches import assert_same_gradients, two_views
from torch.nn.functional import normalize

from mmrank.losses import SigLIPLoss
from mmrank.losses.contrastive import terms as log_mean_exp
from mmrank.losses.contrastive.base import ContrastedBatch
from mmrank.losses.contrastive.siglip import sigmoid_losses


def loops(images, texts, t, b, ids=None):
    """Equation of section 3.2, without what is of the same sample."""
    ids = list(range(len(images))) if ids is None else ids
    losses = []
    for i, x in enumerate(images):
        total = images.new_zeros(())
        for j, y in enumerate(texts):
            if i != j and ids[i] == ids[j]:
                continue
            z = 1 if i == j else -1
            total = total - (1 / (1 + (-z * (t * (x @ y) + b)).exp())).log()
        losses.append(total)
    return torch.stack(losses)


@pytest.mark.parametrize('least', [1, 10**6])
@pytest.mark.parametrize('ids', [None, [3, 1, 3, 0, 5, 1, 3]])
def test_equals_loops(monkeypatch, least, ids):
    monkeypatch.setattr(log_mean_exp, '_LEAST_ENTRIES', least)
    views = [x.requires_grad_() for x in two_views(7)]
    t, b = (torch.tensor(x).double().requires_grad_() for x in (1.7, -0.8))
    index = None if ids is None else torch.tensor(ids)
    got = sigmoid_losses(ContrastedBatch.of_views(views, index), t, b)
    want = loops(*views, t, b, ids)
    assert_same_gradients(got, want, [*views, t, b], rtol=1e-12, atol=1e-12)


def test_the_module_is_the_mean_over_images():
    views = two_views(6)
    loss = SigLIPLoss(tau=0.5, loss_weight=3.0).double()
    loss.logit_bias.data.fill_(-2.0)
    unit = [normalize(x, dim=1) for x in views]
    expected = 3 * loops(*unit, 1 / 0.5, -2.0).mean()
    torch.testing.assert_close(loss(*views), expected)
    assert loss.diagnostics['tau'].item() == pytest.approx(0.5)
    assert loss.diagnostics['bias'].item() == -2
    # Images and texts may be swapped.
    torch.testing.assert_close(loss(*views[::-1]), expected)


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
