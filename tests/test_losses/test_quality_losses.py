"""Point-wise losses against their formulas, entry by entry; RT-DETR's own code: test_adapters."""

import pytest
import torch

from mmrank.losses import IABCELoss, MALLoss, QualityFocalLoss, VarifocalLoss

CLASSES = 3
FOCAL = dict(use_iou=False, alpha=0.25)


def constant(x):
    return x.detach()


#: Weight and target of a positive, and weight of a negative, of p and q as the papers print them.
FORMULAS = [
    (VarifocalLoss, {}, lambda p, q: (q, q), lambda p: 0.75 * constant(p) ** 2),
    (
        VarifocalLoss,
        dict(use_iou=False, alpha=0.5, gamma=1.0),
        lambda p, q: (1, 1),
        lambda p: 0.5 * constant(p),
    ),
    (MALLoss, {}, lambda p, q: (1, q**1.5), lambda p: constant(p) ** 1.5),
    (
        IABCELoss,
        {},
        lambda p, q: (1, max(constant(p) ** 0.25 * q**0.75, torch.tensor(0.01))),
        lambda p: p**2,
    ),
    (QualityFocalLoss, {}, lambda p, q: (abs(q - p) ** 2, q), lambda p: p**2),
    (QualityFocalLoss, FOCAL, lambda p, q: (0.25 * (1 - p) ** 2, 1), lambda p: 0.75 * p**2),
]
NAMES = [f'{cls.__name__}-{len(settings)}' for cls, settings, *_ in FORMULAS]
every_formula = pytest.mark.parametrize(
    ('cls', 'settings', 'positive', 'negative'), FORMULAS, ids=NAMES
)


def batch(n=40, seed=0):
    """Logits, targets (C = background) and qualities of the positives, 0 and 1 among them."""
    g = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, CLASSES, generator=g, dtype=torch.float64)
    target = torch.randint(0, 3 * CLASSES, (n,), generator=g).clamp(max=CLASSES)
    quality = torch.rand(int((target < CLASSES).sum()), generator=g, dtype=torch.float64)
    quality[:2] = torch.tensor([0.0, 1.0])
    return logits.requires_grad_(), target, quality


def with_gradient(value, logits):
    (gradient,) = torch.autograd.grad(value, logits)
    return value.detach(), gradient


def given(loss, quality):
    return {} if loss.box_input is None else dict(quality=quality)


@every_formula
def test_value_and_gradient_are_those_of_the_formula(cls, settings, positive, negative):
    logits, target, quality = batch()
    total, number, qualities = 0, 0, iter(quality)
    for row, label in zip(logits, target.tolist()):
        for c, score in enumerate(row):
            p = score.sigmoid()
            if c == label:
                weight, t = positive(p, next(qualities))
                total = total - weight * (t * p.log() + (1 - t) * (1 - p).log())
                number += 1
            else:
                total = total - negative(p) * (1 - p).log()
    loss = cls(loss_weight=2.0, **settings)
    got = loss(logits, target, **given(loss, quality))
    expected = with_gradient(2 * total / number, logits)
    torch.testing.assert_close(with_gradient(got, logits), expected, rtol=1e-7, atol=1e-9)
    assert loss.diagnostics['num_positive'] == number
    assert loss.logit_centre() is None
    assert not loss.state_dict()


@every_formula
def test_scores_far_away(cls, settings, positive, negative):
    """A negative far below costs nothing; one far above costs its score, not inf or NaN."""
    loss = cls(**settings)
    scores = torch.tensor([[-torch.inf, -1e4, 1e4]], requires_grad=True)
    value = loss(scores, torch.tensor([3]), **given(loss, torch.zeros(0)))
    value, gradient = with_gradient(value, scores)
    assert value.isfinite()
    assert value > 1e3
    assert gradient.isfinite().all()
    assert not gradient[0, :2].any()
