"""The head for binary, one-vs-rest and multi-label classification."""

import copy

import pytest
import torch
from labelled import data_samples

pytest.importorskip('mmpretrain')
from mmpretrain.structures import DataSample

from mmrank.models import OneVsRestHead
from mmrank.models.heads.sample_fields import one_vs_rest_targets

CPU = torch.device('cpu')
COUNTS = dict(class_counts=[30, 20, 10], num_samples=100)
LOSSES = {
    'stable_ap': dict(type='mmrank.StableAPLoss', mode='per_class'),
    'soap': dict(type='mmrank.SOAPLoss', num_samples=12),
    'ldam': dict(type='mmrank.LDAMLoss', scale=1.0, **COUNTS),
    'la_ce': dict(type='mmrank.LogitAdjustedCELoss', **COUNTS),
    'balanced': dict(type='mmrank.BalancedSoftmaxLoss', class_counts=[30, 20, 10]),
    'ce': dict(type='mmpretrain.CrossEntropyLoss', use_sigmoid=True),
    'focal': dict(type='mmpretrain.FocalLoss'),
    'softmax': dict(type='mmpretrain.CrossEntropyLoss'),
}
#: Their values differ from the loss of independent classes.
SOFTMAX = ('ldam', 'la_ce', 'balanced', 'softmax')


def samples(classes, n=12, score=False):
    g = torch.Generator().manual_seed(0)
    target = torch.rand(n, classes, generator=g) < 0.4
    made = []
    for i, row in enumerate(target):
        sample = DataSample(metainfo=dict(sample_idx=i))
        if score:
            sample.set_gt_score(row.float())
        elif classes == 1:
            sample.set_gt_label(int(row[0]))
        else:
            sample.set_gt_label(row.nonzero().flatten())
        made.append(sample)
    return made, target


def head(name, classes, **settings):
    torch.manual_seed(0)
    return OneVsRestHead(classes, 8, LOSSES[name], **settings)


@pytest.mark.parametrize('classes', [1, 3])
def test_mmpretrain_losses_are_the_sum_over_classes(classes):
    data_samples, target = samples(classes)
    feats = torch.randn(12, 8)
    model = head('ce', classes)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(model(feats), target.float())
    got = model.loss(feats, data_samples)['loss']
    torch.testing.assert_close(got, classes * expected)


@pytest.mark.parametrize('classes', [1, 3])
def test_labels_and_scores_mean_the_same(classes):
    by_label, target = samples(classes)
    by_score, _ = samples(classes, score=True)
    for given in (by_label, by_score):
        got = one_vs_rest_targets(given, classes, CPU)
        assert torch.equal(got, target.float())
    assert one_vs_rest_targets([], classes, CPU).shape == (0, classes)
    none = [DataSample().set_gt_label([]) for _ in range(2)]
    if classes > 1:
        assert not one_vs_rest_targets(none, classes, CPU).any()


@pytest.mark.parametrize(
    ('sample', 'classes', 'message'),
    [
        (DataSample(), 3, 'neither gt_label nor gt_score'),
        (DataSample().set_gt_label(3), 3, 'from 0 to 2, got labels from 3'),
        (DataSample().set_gt_label(-1), 3, 'got labels from -1 to -1'),
        (DataSample().set_gt_label(2), 1, 'from 0 to 1, got labels from 2'),
        (DataSample().set_gt_label([]), 1, r'one number for each sample'),
        (DataSample().set_gt_score([0, 0.5, 1]), 3, 'must be 0 or 1, got 0.5'),
        (DataSample().set_gt_score([0, 1]), 3, r'must be \(3,\)'),
    ],
)
def test_bad_labels(sample, classes, message):
    with pytest.raises(ValueError, match=message):
        one_vs_rest_targets([sample], classes, CPU)


@pytest.mark.parametrize('classes', [1, 3])
def test_predictions_are_plain_sigmoids(classes):
    model = head('stable_ap', classes)
    model.loss_module.mean_positive.mean.fill_(4.0)  # what a detector centres
    feats = 30 * torch.randn(5, 8)
    scores = model(feats).sigmoid()
    found = model.predict((feats,), None)
    given, _ = samples(classes, n=5)
    assert model.predict((feats,), given) is given
    for row, sample, other in zip(scores, found, given):
        assert torch.equal(sample.pred_score, row)
        assert torch.equal(other.pred_score, row)
        positive = row >= 0.5
        label = positive.long() if classes == 1 else positive.nonzero()[:, 0]
        assert torch.equal(sample.pred_label, label)


@pytest.mark.parametrize('name', LOSSES)
def test_exclusive_classes_have_softmax_scores(name):
    model = head(name, 3, exclusive=True)
    samples = data_samples(torch.arange(12) % 3)
    feats = torch.randn(12, 8)
    model.loss(feats, samples)['loss'].backward()
    assert model.fc.weight.grad.abs().sum() > 0
    if name not in SOFTMAX:
        # The same loss as of independent classes; the scores alone differ.
        expected = head(name, 3)
        expected.load_state_dict(model.state_dict(), strict=False)
        values = [copy.deepcopy(x).loss(feats, samples)['loss'] for x in (model, expected)]
        torch.testing.assert_close(*values)
    for sample, row in zip(model.predict(feats), model(feats).softmax(1)):
        assert torch.equal(sample.pred_score, row)
        assert sample.pred_label.tolist() == [row.argmax()]


def test_batches_that_do_not_fit():
    model = head('ce', 3, exclusive=True)
    for labels in ([0, 2], []):
        given = [DataSample().set_gt_label(1), DataSample().set_gt_label(labels)]
        with pytest.raises(ValueError, match=f'got one of {len(labels)}. Fix: exclusive=False'):
            model.loss(torch.randn(2, 8), given)
    model = head('soap', 3)
    data_samples, _ = samples(3)
    with pytest.raises(ValueError, match='12 of 13 data samples have a gt_label'):
        one_vs_rest_targets([*data_samples, DataSample()], 3, CPU)
    with pytest.raises(ValueError, match='set in_channels'):
        model.loss(torch.randn(12, 8, 2, 2), data_samples)
    for sample in data_samples:
        sample.pop('sample_idx')
    with pytest.raises(ValueError, match='have no sample_idx'):
        model.loss(torch.randn(12, 8), data_samples)
