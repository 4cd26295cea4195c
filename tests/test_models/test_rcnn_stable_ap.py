"""Stock two-stage detectors of mmdet on stable AP, by config alone."""

import pytest
import torch

pytest.importorskip('mmdet')
from small_heads import objective, trained
from small_rcnn import CLASSES, STABLE_AP, build_detector, compute_losses, make_batch

from mmrank.losses import HeadLoss

KINDS = ('faster', 'cascade')


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
    for losses in trained(model, compute_losses, 2):
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
    losses = compute_losses(model, objects=False)
    total = objective(losses)
    assert total == 0
    total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    for module in model.modules():
        if isinstance(module, HeadLoss):
            assert module.mean_positive.num_updates.item() == 0
