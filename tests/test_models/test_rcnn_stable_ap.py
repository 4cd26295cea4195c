"""Stock two-stage detectors of mmdet on stable AP, by config alone."""

import copy
from functools import partial

import pytest
import torch

pytest.importorskip('mmdet')
from mmengine.structures import InstanceData
from small_heads import objective, trained, watch
from small_rcnn import CLASSES, STABLE_AP, build_detector, compute_losses, make_batch

from mmrank.losses import HeadLoss

KINDS = ('faster', 'mask', 'cascade')
ROIS = 32


def _box_heads(model):
    heads = model.roi_head.bbox_head
    return heads if isinstance(heads, torch.nn.ModuleList) else [heads]


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('mode', ['flatten', 'per_class'])
def test_detectors_train_and_predict(kind, mode):
    loss = dict(STABLE_AP, mode=mode, num_classes=CLASSES)
    model = build_detector(kind, dict(loss_cls=loss))
    heads = _box_heads(model)
    names = [''] if kind != 'cascade' else ['s0.', 's1.', 's2.']
    for losses in trained(model, partial(compute_losses, masks=kind == 'mask'), 2):
        assert {'loss_rpn_cls', 'loss_rpn_bbox'} <= losses.keys()
        for name in names:
            assert losses[f'{name}loss_cls'] > 0
            assert 0 <= losses[f'{name}acc_classes'] <= 100
    for head in heads:
        assert head.fc_cls.out_features == CLASSES
        assert head.fc_cls.weight.grad.abs().sum() > 0
        # Only classes that were seen have a mean of their own.
        seen = head.loss_cls.mean_positive.num_updates
        assert seen.max() == 2
        assert len(seen) == (CLASSES if mode == 'per_class' else 1)
    assert model.rpn_head.rpn_cls.weight.grad.abs().sum() > 0
    model.eval()
    with torch.no_grad():
        results = model.val_step(make_batch())
    for result in results:
        found = result.pred_instances
        assert 0 < len(found) <= 100
        assert found.labels.max() < CLASSES
        assert found.scores.min() >= 0
        assert found.scores.max() <= 1


@pytest.mark.parametrize('kind', KINDS)
def test_a_batch_without_objects(kind):
    model = build_detector(kind)
    losses = compute_losses(model, objects=False, masks=kind == 'mask')
    total = objective(losses)
    assert total == 0
    total.backward()
    for name, parameter in model.named_parameters():
        if 'mask_head' not in name:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
    for module in model.modules():
        if isinstance(module, HeadLoss):
            assert module.mean_positive.num_updates.item() == 0


@pytest.mark.parametrize('kind', ['faster', 'cascade'])
def test_all_boxes_and_the_truth_are_ranked(kind):
    """Nothing is sampled away, in no stage, and the truth is added."""
    model = build_detector(kind)
    calls, proposals = [watch(head.loss_cls) for head in _box_heads(model)], []
    predict = model.rpn_head.loss_and_predict

    def spy(*args, **kwargs):
        losses, found = predict(*args, **kwargs)
        proposals.extend(len(f) for f in found)
        return losses, found

    model.rpn_head.loss_and_predict = spy
    compute_losses(model)
    assert proposals == [ROIS, ROIS]
    assert len(calls) == (3 if kind == 'cascade' else 1)
    for ((_, labels, weights, _),) in calls:
        assert len(labels) == 2 * ROIS + 3
        assert (weights == 1).all()
        assert (labels < CLASSES).sum() >= 3


def test_all_anchors_are_ranked():
    model = build_detector()
    calls = watch(model.rpn_head.loss_cls.loss)
    compute_losses(model)
    ((scores, labels, weights, _),) = calls
    # Three anchors at each place of 12, 6, 3 and 2 squared, in two images.
    assert scores.shape == (2 * 3 * (144 + 36 + 9 + 4), 1)
    # Those between the two thresholds are neither positive nor negative.
    ignored = (weights == 0).float().mean()
    assert len(labels) == len(scores)
    assert 0 < ignored < 0.1


def test_centring_leaves_the_proposals_as_they_are():
    model = build_detector().eval()
    # The scores of an untrained head differ by less than sigmoid resolves.
    torch.nn.init.normal_(model.rpn_head.rpn_cls.weight, std=1.0)
    mean = model.rpn_head.loss_cls.loss.mean_positive.mean
    data = model.data_preprocessor(make_batch(), False)
    features = model.extract_feat(data['inputs'])
    found = []
    for value in (0.0, -4.0):
        mean.fill_(value)
        with torch.no_grad():
            found.append(model.rpn_head.predict(features, data['data_samples'], rescale=False))
    for before, after in zip(*found):
        assert isinstance(before, InstanceData)
        assert len(before) == ROIS
        torch.testing.assert_close(before.bboxes, after.bboxes)
        assert (after.scores > before.scores).all()


def test_the_head_of_the_config_shows_centred_scores():
    model = build_detector().eval()
    mean = model.roi_head.bbox_head.loss_cls.mean_positive.mean

    def top(value):
        mean.fill_(value)
        with torch.no_grad():
            results = copy.deepcopy(model).val_step(make_batch())
        return results[0].pred_instances.scores.max()

    assert top(-4.0) > 0.9 > 0.1 > top(4.0)
