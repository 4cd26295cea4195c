"""What users of other libraries type first: the right answer, or a fix that works."""

import re
import warnings
from collections import Counter, UserDict

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

import mmrank.functional as F
from mmrank import losses
from mmrank.errors import UserError
from mmrank.state import GradientBalance

COUNTED = dict(class_counts=[5, 3, 1])
UNIT = normalize(torch.randn(12, 8, generator=torch.Generator().manual_seed(0)))
CLASSES = torch.arange(12) % 4


def rows(seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(8, 3, generator=g), torch.tensor([0, 1, 0, 2, 0, 1, 1, 2])


def test_an_entry_of_weight_0_is_never_looked_at():
    scores, labels = rows()
    labels = torch.nn.functional.one_hot(labels, 3)
    weight = torch.ones(8, 3)
    weight[2, 1] = weight[5] = 0
    unknown = torch.where(weight > 0, labels, -1)
    expected = losses.StableAPLoss()(scores, labels, weight=weight)
    assert torch.equal(losses.StableAPLoss()(scores, unknown, weight=weight), expected)
    expected = losses.APLoss()(scores[:, 0], labels[:, 0], weight=weight[:, 1])
    found = losses.APLoss()(scores[:, 0], unknown[:, 0] - (weight[:, 1] == 0).long(), weight[:, 1])
    assert torch.equal(found, expected)


def test_maps_and_qualities_of_all_rows():
    maps = torch.rand(2, 3, 4, 4)
    labels = torch.randint(3, (2, 4, 4))
    flat = maps.movedim(1, -1).flatten(0, -2), labels.flatten()
    assert losses.StableAPLoss()(*flat).isfinite()
    scores, labels = rows()
    labels = torch.where(labels == 2, 3, labels)
    quality = torch.rand(8)
    expected = losses.GradedAPLoss()(scores, labels, quality=quality[labels < 3])
    assert torch.equal(losses.GradedAPLoss()(scores, labels, quality=quality), expected)


@pytest.mark.parametrize(
    ('loss', 'batch', 'message'),
    [
        (losses.StableAPLoss(), (UNIT, CLASSES), r'mmrank.EmbeddingLoss\(StableAPLoss\(\)\)'),
        (losses.SmoothAPLoss(), (UNIT.abs(), CLASSES), r'EmbeddingLoss\(SmoothAPLoss\(\)\)'),
        (losses.StableAPLoss(), (UNIT.sigmoid(), CLASSES), 'takes logits'),
        (losses.APLoss(), (UNIT.softmax(1), CLASSES), 'takes logits'),
        (losses.AsymmetricLoss(8), (UNIT.sigmoid(), CLASSES), 'takes logits'),
        (losses.InfoNCELoss(), (UNIT, UNIT, CLASSES * 0), 'sample_idx=0'),
        (losses.DRLoss(), (2 * UNIT[:, :4], CLASSES + 1), 'none is 0; 4 is the background'),
    ],
)
def test_the_first_batch_is_looked_at_once(loss, batch, message):
    with pytest.warns(UserWarning, match=message):
        loss(*batch)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        loss(*batch)


def test_usual_batches_give_no_warning():
    onehot = torch.nn.functional.one_hot(CLASSES, 8)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        losses.StableAPLoss()(2 * UNIT, CLASSES)
        losses.SmoothAPLoss()(UNIT.sigmoid(), CLASSES)
        losses.StableAPLoss(tau=0.1, score_range=(0, 1))(UNIT.sigmoid(), CLASSES)
        losses.StableAPLoss()(UNIT, CLASSES, avg_factor=1)
        losses.SmoothAPLoss()(UNIT, onehot)
        losses.EmbeddingLoss(losses.StableAPLoss())(UNIT, CLASSES)
        losses.InfoNCELoss()(UNIT, UNIT, CLASSES)


@pytest.mark.parametrize('counts', [[50, 30, 20], Counter({0: 50, 1: 30, 2: 20})])
def test_class_indices_are_of_a_softmax(counts):
    scores, labels = rows()
    shift = torch.tensor([0.5, 0.3, 0.2]).log()
    expected = cross_entropy(scores + shift, labels)
    loss = losses.LogitAdjustedCELoss(counts)
    torch.testing.assert_close(loss(scores, labels), expected)
    onehot = torch.nn.functional.one_hot(labels, 3)
    by_sigmoid = losses.LogitAdjustedCELoss(counts, use_sigmoid=True)
    assert torch.equal(loss(scores, onehot), by_sigmoid(scores, labels))
    # The counts say how many classes there are, also those that come later; one is binary.
    later = losses.LogitAdjustedCELoss()
    later.set_class_counts([50, 30, 20])
    assert later.num_columns == loss.num_columns == 3
    assert torch.equal(later(scores, labels), loss(scores, labels))
    one = losses.LogitAdjustedCELoss([30], num_samples=100)
    first = (labels == 0).long()
    assert torch.equal(one(scores[:, :1], 1 - first), one(scores[:, :1], first[:, None]))
    assert one(scores[:, :1], first[:, None]) > 0
    plain = losses.AsymmetricLoss()
    assert torch.equal(plain(scores, labels), losses.AsymmetricLoss(3)(scores, labels))


OF_TARGETS = {
    'ap_loss': F.ap_loss,
    'dr_loss': F.dr_loss,
    'rank_sort_loss': lambda *x, **mask: F.rank_sort_loss(*x, **mask)[0],
    'alrp_loss': lambda s, t, **mask: F.alrp_loss(s, t, s * 0, **mask)[0],
}


@pytest.mark.parametrize('name', OF_TARGETS)
def test_minus_one_is_left_out_by_the_mask_alone(name):
    scores = torch.tensor([0.9, 0.8, 0.7, 0.6])
    labels = torch.tensor([0.0, 1, 1, -1])
    function = OF_TARGETS[name]
    with pytest.raises(UserError, match=r'targets > 0 if .*mask=\(targets >= 0\)'):
        function(scores, labels)
    found = function(scores, labels, mask=labels >= 0)
    assert torch.equal(found, function(scores[:3], labels[:3]))
    assert found > 0
    with pytest.raises(UserError, match=r'targets must be in \[0, 1\]'):
        function(scores, 3 * scores)


@pytest.mark.parametrize('function', [F.smooth_ap_loss, F.ap_loss])
@pytest.mark.parametrize('worst', [-1.0, torch.nan])
def test_a_relevance_below_zero_is_refused(function, worst):
    scores = torch.tensor([0.9, 0.8, 0.7])
    relevance = torch.tensor([worst, 1.0, 0.5])
    with pytest.raises(UserError, match='relevance must be >= 0 at the positives'):
        function(scores, torch.tensor([1, 0, 1]), relevance=relevance)
    function(scores, torch.tensor([0, 1, 1]), relevance=relevance)


@pytest.mark.parametrize(
    ('dtype', 'size'),
    [
        (torch.float16, 1e3),
        (torch.float16, 1e-6),
        (torch.bfloat16, 1e20),
        (torch.bfloat16, 1e-6),
        (torch.float32, 1e20),
        (torch.float32, 1e-30),
    ],
)
def test_gradients_of_any_size_are_balanced(dtype, size):
    features = torch.ones(4, dtype=dtype, requires_grad=True)
    balance = GradientBalance(1.0)
    watched = balance.watch(features)
    factor = balance.factor(100 * size * watched.sum().float(), size * watched.sum().float())
    torch.testing.assert_close(float(factor), 0.01, rtol=1e-2, atol=0)


def test_a_sum_balances_by_the_embeddings():
    g = torch.Generator().manual_seed(0)
    embeddings = 3 * torch.randn(12, 8, generator=g)
    embeddings[:6] *= 100
    embeddings.requires_grad_()
    parts = [losses.SmoothAPLoss(tau=0.1), losses.AUCLoss(tau=0.1)]
    loss = losses.EmbeddingLoss(losses.SumLoss(parts, balance_gradients=True))
    loss(embeddings, CLASSES)
    norms = []
    for part in parts:
        value = losses.EmbeddingLoss(part)(embeddings, CLASSES)
        norms.append(torch.autograd.grad(value, embeddings)[0].norm())
    found = loss.loss.diagnostics['factor_1']
    torch.testing.assert_close(found, norms[0] / norms[1], rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    'loss', [losses.SmoothAPLoss(tau=0.1), losses.NDCGLoss(tau=0.1), losses.RecallAtKLoss(tau=0.1)]
)
def test_backward_inside_autocast(loss):
    scores, labels = rows()
    scores.requires_grad_()
    loss(scores, labels).backward()
    expected = scores.grad.clone()
    scores.grad = None
    with torch.autocast('cpu', dtype=torch.bfloat16):
        loss(scores, labels).backward()
    torch.testing.assert_close(scores.grad, expected, rtol=1e-6, atol=1e-9)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 4)
        self.most = 0

    def forward(self, batch):
        ids, mask = batch.values() if hasattr(batch, 'values') else batch
        self.most = max(self.most, len(ids))
        return (self.table(ids) * mask[..., None]).mean(1)


@pytest.mark.parametrize('kind', [dict, UserDict, tuple])
def test_columns_are_embedded_in_chunks(kind):
    torch.manual_seed(0)
    columns = dict(ids=torch.randint(50, (10, 6)), mask=torch.ones(10, 6))
    batch = tuple(columns.values()) if kind is tuple else kind(columns)
    net = Encoder()
    expected = net(batch)
    net.most = 0
    torch.testing.assert_close(F.grad_cache(net, batch, chunk=4), expected)
    assert net.most == 4


def test_reweighting_keeps_its_dtype():
    loss = losses.LDAMLoss(**COUNTED).half()
    assert loss.reweighting.dtype == torch.long
    loss.load_state_dict({'reweighting': torch.ones(())})
    assert loss.reweighting == 1


def test_every_fix_of_other_libraries_is_named():
    from mmrank.losses.options import ELSEWHERE

    for name in ELSEWHERE:
        with pytest.raises(UserError, match=re.escape(f'does not take {name}. Fix: ')):
            losses.CLIPLoss(**{name: 1})
