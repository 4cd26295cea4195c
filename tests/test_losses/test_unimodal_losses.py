"""FlatCLR, SimCo, spectral, VICReg and Barlow Twins against plain loops."""

import math

import pytest
import torch
from subjects import two_views
from torch.nn.functional import normalize

from mmrank.registry import MODELS

LOSSES = {
    'flat': dict(type='FlatCLRLoss', tau=0.3),
    'flat_bimodal': dict(type='FlatCLRLoss', tau=0.3, bimodal=True),
    'simco': dict(type='SimCoLoss', tau=0.2),
    'simco_both': dict(type='SimCoLoss', tau=0.2, bimodal=False),
    'spectral': dict(type='SpectralContrastiveLoss'),
    'vicreg': dict(type='VICRegLoss'),
    'barlow': dict(type='BarlowTwinsLoss'),
}
#: Constants of the classes, not those of the papers.
CONSTANTS = {
    'simco': dict(tau_inter=0.9),
    'spectral': dict(mu=3.0),
    'vicreg': dict(invariance=3.0, variance=2.0, covariance=1.5),
    'barlow': dict(off_diagonal=0.2),
}
BATCH_STATISTICS = ('vicreg', 'barlow')


def build(name, constants=None, **kwargs):
    config = {**LOSSES[name], **kwargs}
    loss = MODELS.build({**config, 'type': 'mmrank.' + config['type']})
    for key, value in (constants or CONSTANTS.get(name, {})).items():
        assert hasattr(loss, key)
        setattr(loss, key, value)
    return loss


def anchors_of(name, views, ids):
    """Anchor, positive and the negatives of each, one after the other."""
    both = name in ('flat', 'simco_both')
    for v in range(2):
        for i in range(len(ids)):
            sides = (0, 1) if both else (1 - v,)
            yield (
                views[v][i],
                views[1 - v][i],
                [views[w][j] for w in sides for j in range(len(ids)) if ids[j] != ids[i]],
            )


def loop(name, view1, view2, ids):
    """The value by the definition, and a scalar with the right gradient."""
    n = len(ids)
    views = [normalize(x, dim=1) for x in (view1, view2)]
    values = []
    if 'flat' in name:
        for a, p, negatives in anchors_of(name, views, ids):
            z = sum(((a @ k - a @ p) / 0.3).exp() for k in negatives)
            flat = z / z.detach()  # the paper's loss, always 1
            values.append((z.detach().log(), flat))
    elif 'simco' in name:
        inter = CONSTANTS.get(name, {}).get('tau_inter', 1.0)
        for a, p, negatives in anchors_of(name, views, ids):
            logits = torch.stack([a @ p, *(a @ k for k in negatives)])
            intra = (logits / 0.2).softmax(0)
            weight = (1 - (logits / inter).softmax(0)[0]) / (1 - intra[0])
            value = -weight.detach() * intra[0].log()
            values.append((value.detach(), value))
    elif name == 'spectral':
        rows = [
            [x if x.norm() <= math.sqrt(3) else x / x.norm() * math.sqrt(3) for x in view]
            for view in (view1, view2)
        ]
        for i in range(n):
            squares = [(rows[0][i] @ rows[1][j]) ** 2 for j in range(n) if ids[j] != ids[i]]
            value = sum(squares) / len(squares) - 2 * rows[0][i] @ rows[1][i]
            values.append((value.detach() / 3, value / 3))
    elif name == 'vicreg':
        d = view1.size(1)
        value = 3 * ((view1 - view2) ** 2).sum() / (n * d)
        for view in (view1, view2):
            c = view - view.sum(0) / n
            cov = c.t() @ c / (n - 1)
            for a in range(d):
                value = value + (1 - (cov[a, a] + 1e-4).sqrt()).relu() / d
                for b in range(d):
                    if a != b:
                        value = value + 1.5 * cov[a, b] ** 2 / d
        values.append((value.detach(), value))
    else:
        x, y = ((v - v.mean(0)) / (v.var(0, correction=0) + 1e-5).sqrt() for v in (view1, view2))
        value = 0
        for a in range(x.size(1)):
            for b in range(x.size(1)):
                c = (x[:, a] * y[:, b]).mean()
                value = value + ((1 - c) ** 2 if a == b else 0.2 * c**2)
        values.append((value.detach(), value))
    return [sum(x) / len(values) for x in zip(*values)]


@pytest.mark.parametrize('dim', [3, 9])  # fewer and more columns than rows
@pytest.mark.parametrize('name', LOSSES)
def test_loss_and_gradient_equal_a_loop(name, dim):
    ids = [4, 1, 9, 1, 0, 7]
    views = [x.requires_grad_() for x in two_views(6, 3, dim)]
    got = build(name, loss_weight=2.0)(*views, torch.tensor(ids))
    value, surrogate = loop(name, *views, ids)
    torch.testing.assert_close(got, 2 * value, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(
        torch.autograd.grad(got, views),
        torch.autograd.grad(2 * surrogate, views),
        rtol=1e-8,
        atol=1e-10,
    )


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float])
def test_simco_is_finite_where_the_ratio_overflows(dtype):
    # Opposite pairs: 1 - p is exp(-400) at the small temperature.
    view = torch.tensor([[1.0, 0], [-1, 0]], dtype=dtype).requires_grad_()
    value = build('simco', dict(tau_inter=0.01), tau=0.005)(view, view)
    (grad,) = torch.autograd.grad(value, view)
    assert value.dtype == torch.float32
    assert value.isfinite()
    assert grad.isfinite().all()


def test_wide_embeddings_need_no_matrix_of_columns():
    # 30,000 columns: their matrix would take 3.6 GB.
    view1, view2 = torch.randn(2, 4, 30000).unbind()
    for name in BATCH_STATISTICS:
        assert build(name)(view1, view2).isfinite()
