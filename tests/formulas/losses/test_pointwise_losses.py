"""SOAP, MAUC and the point-wise losses against their formulas, entry by entry."""

import math

import pytest
import torch
from score_lists import mauc_losses
from subjects import assert_same_gradients, call_rows, made_up, rows_with_background
from torch.nn.functional import cross_entropy

from mmrank.losses import (
    AsymmetricLoss,
    BalancedSoftmaxLoss,
    ClassBalancedCELoss,
    IABCELoss,
    LDAMLoss,
    LogitAdjustedCELoss,
    MALLoss,
    MAUCLoss,
    QualityFocalLoss,
    SOAPLoss,
    VarifocalLoss,
)
from mmrank.losses.auc.soap import SampleRanks
from mmrank.losses.pointwise.class_balanced_ce import effective_number_weights
from mmrank.losses.pointwise.ldam import _ldam_margins

CLASSES, SAMPLES = 3, 40
COUNTS = dict(class_counts=[300, 20, 100], num_samples=500)


def batch(n=12, seed=0):
    """Scores, multi-label targets and indices."""
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, CLASSES, generator=g, dtype=torch.float64)
    target = (torch.rand(n, CLASSES, generator=g) < 0.4).long()
    ids = torch.randperm(SAMPLES, generator=g)[:n]
    return scores, target, ids


def soap_by_loops(history, gamma, margin):
    """The u of each (class, sample) after batches (scores, target, ids)."""
    u = {}
    for scores, target, ids in history:
        for c in range(CLASSES):
            pos = (target[:, c] > 0).nonzero().flatten().tolist()
            for i in pos:
                ell = [
                    max(margin - (scores[i, c] - s).item(), 0) ** 2 / margin**2
                    for s in scores[:, c]
                ]
                g = torch.tensor([sum(ell[k] for k in pos), sum(ell)])
                g = g.double() / len(ell)
                key = (c, int(ids[i]))
                old = u.get(key)
                u[key] = g if old is None else (1 - gamma) * old + gamma * g
    return u


def test_soap_state_is_that_of_the_algorithm():
    loss = SOAPLoss(SAMPLES, CLASSES, gamma=0.3, margin=0.8)
    history = [batch(seed=s) for s in range(5)]
    for scores, target, ids in history:
        value = loss(scores, target, sample_idx=ids)
    u = soap_by_loops(history, 0.3, 0.8)
    kept = loss.ranks.table.view(2, CLASSES, SAMPLES)
    expected = torch.zeros(2, CLASSES, SAMPLES)
    for (c, i), pair in u.items():
        expected[:, c, i] = pair.float()
    torch.testing.assert_close(kept, expected)
    # The value comes from u after the step.
    scores, target, ids = history[-1]
    risks = [
        sum(1 - u[c, int(i)][0] / u[c, int(i)][1] for i in ids[has > 0]) / (has > 0).sum()
        for c, has in enumerate(target.t())
    ]
    assert value.item() == pytest.approx(sum(risks).item() / CLASSES, rel=1e-6)
    # The gradient takes u for a constant.
    x = scores.clone().requires_grad_()
    loss.eval()
    before = kept.clone()
    (got,) = torch.autograd.grad(loss(x, target, sample_idx=ids), x)
    assert torch.equal(kept, before)
    total = 0.0
    for c in range(CLASSES):
        pos = (target[:, c] > 0).nonzero().flatten()
        each = (1 - (x[pos, c][:, None] - x[:, c]) / 0.8).clamp(min=0).square()
        ranks = torch.stack([each[:, pos].sum(1), each.sum(1)]) / len(x)
        old = before[:, c, ids[pos]].double()
        new = 0.7 * old + 0.3 * ranks.detach()
        ratio = new[0] / new[1]
        total = total + ((ratio * ranks[1] - ranks[0]) / new[1]).mean()
    (expected,) = torch.autograd.grad(total / CLASSES, x)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


def test_soap_repeated_samples_and_overflow():
    """A sample that is twice in a batch counts by its mean; what is not finite does not count."""
    state = SampleRanks(5, gamma=0.5)
    ids = state.index_of(torch.tensor([3, 3, 0]), torch.device('cpu'))
    one = torch.ones(3, 1).bool()
    state.update(ids, torch.tensor([[[1.0], [3], [1]], [[2.0], [4], [5]]]), one)
    assert state.table[:, [3, 0]].tolist() == [[2, 1], [3, 5]]
    nan = torch.tensor([[[torch.nan], [4.0], [1e39]], [[2.0], [5], [1e39]]])
    state.update(ids, nan.double(), one)
    assert state.table[:, [3, 0]].tolist() == [[3, 1], [4, 5]]
    # Padding that shares its index with a positive changes nothing.
    one[0] = False
    state.update(ids, torch.full((2, 3, 1), 8.0), one)
    assert state.table[:, [3, 0]].tolist() == [[5.5, 4.5], [6, 6.5]]
    assert state.table.count_nonzero() == 4


def mauc_by_loops(scores, positive, mask, tau):
    """(C,) means of one class against another, and against what is of no class."""
    losses = []
    groups = [*positive, ~positive.any(0)]
    for i, own in enumerate(positive):
        means = []
        for j, other in enumerate(groups):
            # A sample is no negative of its own classes.
            above = scores[i, own & mask[i]]
            below = scores[i, other & ~own & mask[i]]
            if i != j and len(above) and len(below):
                means.append((1 - (above[:, None] - below) / tau).square().mean())
        losses.append(torch.stack(means).mean() if means else scores.new_zeros(()))
    return torch.stack(losses)


@pytest.mark.parametrize('labels', ['one', 'several'])
@pytest.mark.parametrize('classes', [1, 2, 4])
def test_mauc_is_the_mean_over_pairs_of_classes(classes, labels):
    """What is left out takes no part, whatever it is."""
    g = torch.Generator().manual_seed(classes)
    scores = made_up(classes, 14).double()
    positive = torch.rand(classes, 14, generator=g) < 0.4
    if labels == 'one':
        index = torch.randint(0, classes + 1, (14,), generator=g)
        positive = index == torch.arange(classes)[:, None]
    mask = (torch.arange(14) != 4).expand(classes, 14)
    scores[:, 4] = torch.nan
    expected = mauc_by_loops(scores, positive, mask, 0.7)
    torch.testing.assert_close(mauc_losses(scores, positive, mask, tau=0.7), expected)


def test_mauc_is_the_mean_over_classes_with_pairs():
    scores, _, _ = batch()
    index = torch.arange(12) % 2  # class 2 is absent
    positive = (index[:, None] == torch.arange(CLASSES)).t()
    losses = mauc_losses(scores.t(), positive)
    loss = MAUCLoss(num_classes=CLASSES)(scores, index)
    assert loss.item() == pytest.approx(losses.sum().item() / 2)
    with pytest.raises(ValueError, match=r'use mmrank\.AUCLoss'):
        MAUCLoss().loss_of_lists(scores.t(), positive, ~positive, list_classes=torch.arange(3))


def test_effective_number():
    counts = torch.tensor([5000, 500, 0, 50])
    got = effective_number_weights(counts, 0.999)
    raw = [(1 - 0.999) / (1 - 0.999**n) if n else 0.0 for n in counts.tolist()]
    expected = [3 * w / sum(raw) for w in raw]
    assert got.tolist() == pytest.approx(expected, rel=1e-9)
    assert effective_number_weights(counts, 0.0).tolist() == [1, 1, 0, 1]


def test_binary_ldam_is_that_of_two_classes():
    score, positive = made_up(9, 1).double(), torch.arange(9)[:, None] % 3 == 0
    two = torch.cat([torch.zeros_like(score), score], 1)
    binary = LDAMLoss(num_classes=1, scale=2.0, class_counts=[10], num_samples=100)
    softmax = LDAMLoss(num_classes=2, scale=2.0, use_sigmoid=False, class_counts=[90, 10])
    torch.testing.assert_close(binary(score, positive), softmax(two, positive[:, 0].long()))


def test_class_balanced_ce_is_the_authors_code():
    scores, _, _ = batch()
    index = torch.arange(12) % CLASSES
    counts = [300, 20, 100]
    raw = (1 - 0.99) / (1 - 0.99 ** torch.tensor(counts).double())
    loss = ClassBalancedCELoss(counts, 0.99, use_sigmoid=False)
    expected = cross_entropy(scores, index, raw / raw.sum() * CLASSES, reduction='none').mean()
    torch.testing.assert_close(loss(scores, index), expected)
    # A column is the softmax of two classes.
    two = torch.cat([torch.zeros(12, 1).double(), scores[:, :1]], 1)
    label = (index == 1).long()
    binary = ClassBalancedCELoss([20], 0.99, num_samples=320)
    softmax = ClassBalancedCELoss([300, 20], 0.99, use_sigmoid=False)
    torch.testing.assert_close(binary(scores[:, :1], label[:, None]), softmax(two, label))


@pytest.mark.parametrize('tau', [0.0, 1.0, 1.7])
def test_logit_adjusted_ce_by_loops(tau):
    """As in the authors' code, with a class that the training set lacks."""
    counts, (scores, target, _) = [300, 0, 100], batch()
    prior = [math.log((n / 400) ** tau + 1e-12) for n in counts]
    labels = torch.arange(12) % CLASSES
    total = 0.0
    for row, label in zip(scores.tolist(), labels.tolist()):
        moved = [s + x for s, x in zip(row, prior)]
        total += math.log(sum(map(math.exp, moved))) - moved[label]
    loss = LogitAdjustedCELoss(counts, tau, use_sigmoid=False)
    assert loss(scores, labels).item() == pytest.approx(total / 12)
    if tau == 1:
        balanced = BalancedSoftmaxLoss(counts)
        assert torch.equal(balanced(scores, labels), loss(scores, labels))
    # Each column is the softmax of two classes.
    got = LogitAdjustedCELoss(counts, tau, num_samples=500)(scores, target)
    total = 0.0
    for s, y, n in zip(scores.flatten().tolist(), target.flatten().tolist(), 12 * counts):
        no, yes = (math.exp(x) * ((k / 500) ** tau + 1e-12) for x, k in ((0, 500 - n), (s, n)))
        total -= math.log((yes if y else no) / (no + yes))
    assert got.item() == pytest.approx(total / 12)


@pytest.mark.parametrize(('gamma_neg', 'gamma_pos', 'clip'), [(4, 0, 0.05), (2, 1, 0), (0, 0, 0.3)])
def test_asymmetric_loss_by_loops(gamma_neg, gamma_pos, clip):
    scores, target, _ = batch()
    total = 0.0
    for s, y in zip((3 * scores).flatten().tolist(), target.flatten().tolist()):
        p = 1 / (1 + math.exp(-s))
        q = max(p - clip, 0)
        total -= (1 - p) ** gamma_pos * math.log(p) if y else q**gamma_neg * math.log(1 - q)
    loss = AsymmetricLoss(CLASSES, gamma_neg, gamma_pos, clip)
    assert loss(3 * scores, target).item() == pytest.approx(total / 12)


def test_ldam_deferred_weights_are_a_weighted_mean():
    scores, target, _ = batch()
    loss = LDAMLoss(num_classes=CLASSES, scale=2.0, reweight_beta=0.99, **COUNTS)
    counts = torch.tensor([[200, 300], [480, 20], [400, 100]])
    neg, pos = _ldam_margins(counts, 0.5).unbind(1)
    each = torch.where(target > 0, pos - scores, neg + scores).mul(2.0).exp().log1p()
    torch.testing.assert_close(loss(scores, target), each.mean(0).sum())
    loss.start_reweighting()
    weights = effective_number_weights(counts, 0.99)
    weights = torch.where(target > 0, weights[:, 1], weights[:, 0])
    expected = ((each * weights).sum(0) / weights.sum(0)).sum()
    torch.testing.assert_close(loss(scores, target), expected)


def test_ldam_softmax_is_the_authors_code():
    scores, _, _ = batch()
    index = torch.arange(12) % CLASSES
    counts = torch.tensor([300, 20, 100])
    loss = LDAMLoss(num_classes=CLASSES, use_sigmoid=False, class_counts=counts.tolist())
    lowered = scores.clone()
    margins = 0.5 * (20 / counts.double()) ** 0.25
    lowered[torch.arange(12), index] -= margins[index]
    torch.testing.assert_close(loss(scores, index), cross_entropy(30 * lowered, index))
    loss.start_reweighting()
    weights = effective_number_weights(counts, 0.9999)
    torch.testing.assert_close(loss(scores, index), cross_entropy(30 * lowered, index, weights))


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


def boxes():
    """Logits, targets (C = background) and qualities of the positives, 0 and 1 among them."""
    logits, target = rows_with_background(40, CLASSES)
    quality = torch.linspace(0, 1, int((target < CLASSES).sum()), dtype=torch.float64)
    return (3 * logits).requires_grad_(), target, quality


@every_formula
def test_value_and_gradient_are_those_of_the_formula(cls, settings, positive, negative):
    logits, target, quality = boxes()
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
    got = call_rows(loss, logits, target, None, quality)
    assert_same_gradients(got, 2 * total / number, [logits], rtol=1e-7, atol=1e-9)
    assert loss.diagnostics['num_positive'] == number
    assert loss.logit_centre() is None
    assert not loss.state_dict()


@every_formula
def test_scores_far_away(cls, settings, positive, negative):
    """A negative far below costs nothing; one far above costs its score, not inf or NaN."""
    loss = cls(**settings)
    scores = torch.tensor([[-torch.inf, -1e4, 1e4]], requires_grad=True)
    value = call_rows(loss, scores, torch.tensor([3]), None, torch.zeros(0))
    (gradient,) = torch.autograd.grad(value, scores)
    assert value.isfinite()
    assert value > 1e3
    assert gradient.isfinite().all()
    assert not gradient[0, :2].any()
