"""Heads that ignore the classes which an image is not annotated for."""

import pytest
import torch

from mmrank.errors import UserError
from mmrank.models.federated_annotations import (
    check_federated_loss,
    exhaustive_classes,
    federated_weight,
)

pytest.importorskip('mmdet')
from covered_heads import MORE_HEADS, build_covered, covered_losses
from query_heads import QUERY_HEADS, build_query_head, query_inputs
from small_heads import CLASSES, FOCAL, HEADS, STABLE_AP, watch
from small_rcnn import federated_detector, make_batch

from mmrank.models.dense_heads.collectors import LevelCollector

NAMES = sorted(name for name in {**HEADS, **MORE_HEADS} if not name.endswith('RPNHead'))
# The second image is annotated for nothing but its objects.
EXHAUSTIVE = [[0, 2], []]


def loops(labels, images, target, weight, classes):
    """What counts, score by score."""
    rows = []
    for image, label, own in zip(images, target, weight):
        rows.append([bool(own > 0) and (label == c or c in labels[image]) for c in range(classes)])
    return torch.tensor(rows)


def test_rows_without_a_weight_do_not_count():
    exhaustive = torch.tensor([[True, False]])
    target = torch.tensor([0, 0, 2])
    weight = torch.tensor([1.0, 0.0, -1.0])
    found = federated_weight(torch.nn.Identity(), exhaustive, torch.zeros(3).long(), target, weight)
    assert found.tolist() == [[1, 0], [0, 0], [0, 0]]


def test_wrong_labels_and_losses_are_refused():
    device = torch.device('cpu')
    with pytest.raises(UserError, match=r'LVISDataset.*meta_keys=\(') as found:
        exhaustive_classes([dict(img_id=3)], 2, device, 'bbox_head')
    assert "only ['img_id']" in str(found.value)
    with pytest.raises(UserError, match='class indices from 1 to 2, but'):
        exhaustive_classes([dict(exhaustive_labels=[1, 2])], 2, device, 'x')
    with pytest.raises(UserError, match='from -1 to -1'):
        exhaustive_classes([dict(exhaustive_labels=[-1])], 2, device, 'x')
    with pytest.raises(TypeError, match='mmrank.StableAPLoss'):
        check_federated_loss(torch.nn.BCELoss(), 'a head')


def level_of_images(outs):
    """The same outputs, the scores of the second image far above."""
    level = torch.tensor([0.2, 0.8]).logit()[:, None, None, None]
    scores = [torch.zeros_like(x) + level for x in outs[0]]
    return scores, *outs[1:]


def level_of_probabilities(outs):
    scores, *others = level_of_images(outs)
    return [x.sigmoid() for x in scores], *others


def level_of_joint_scores(outs):
    scores, boxes, objectness = level_of_images(outs)
    return scores, boxes, [torch.full_like(x, 20.0) for x in objectness]


@pytest.mark.parametrize('name', NAMES)
def test_dense_head_masks_the_scores_of_an_image(name):
    """Rows are told apart by their scores, whatever their order."""
    change = {'TOODHead': level_of_probabilities, 'YOLOXHead': level_of_joint_scores}.get(
        name, level_of_images
    )
    head = build_covered(name, STABLE_AP, federated=True)
    calls = watch(head.loss_cls.loss)
    covered_losses(name, head, labels=EXHAUSTIVE, change=change, epoch=1)
    ((scores, target, weight, _),) = calls
    images = (scores[:, 0] > 0).long()
    assert images.float().mean() == 0.5
    weight = weight > 0
    assert weight.shape == scores.shape
    # Some heads ignore rows by themselves.
    used = weight.any(1) | (images == 1)
    expected = loops(EXHAUSTIVE, images.tolist(), target.tolist(), used, CLASSES)
    assert used.float().mean() > 0.9
    positive = target < CLASSES
    assert weight[~positive].equal(expected[~positive])
    rows = positive.nonzero().squeeze(1)
    assert len(rows)
    kept = weight[rows, target[rows]]
    assert kept.any()
    assert weight[rows][kept].equal(expected[rows][kept])
    empty = covered_losses(name, head, boxes=False, labels=EXHAUSTIVE, epoch=1)[1]
    assert empty['loss_cls'] == 0
    with pytest.raises(UserError, match='has federated=True'):
        covered_losses(name, head)


def test_focal_loss_takes_the_mask_as_weights():
    """The twin of a ranking loss: the sum over what counts."""
    head = build_covered('RetinaHead', FOCAL, federated=True)
    calls = watch(head.loss_cls.loss)
    covered_losses('RetinaHead', head, labels=EXHAUSTIVE)
    ((scores, target, weight, _),) = calls
    assert weight.is_floating_point()
    assert 0 < weight.mean() < 1
    each = head.loss_cls.loss(scores, target, reduction_override='none')
    whole = head.loss_cls.loss(scores, target, weight, avg_factor=1.0)
    torch.testing.assert_close(whole, (each * weight).sum())
    head.loss_cls.open()
    head.loss_cls(torch.zeros(3, 2), torch.zeros(3, dtype=torch.long))
    mask = torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(RuntimeError, match='passed 3 rows to loss_cls'):
        head.loss_cls.gather((mask, torch.zeros(4, dtype=torch.long)))


@pytest.mark.parametrize('name', QUERY_HEADS)
def test_queries_are_masked_by_image(name):
    head = build_query_head(name, federated=True)
    calls = {
        path: watch(collector.loss)
        for path, collector in head.loss_cls.named_modules()
        if isinstance(collector, LevelCollector)
    }
    *args, last = query_inputs(name)
    metas = last if isinstance(last, list) else args[-1]
    metas[:] = [
        dict(img_shape=(128, 128), scale_factor=(1, 1), exhaustive_labels=x) for x in EXHAUSTIVE
    ]
    losses = head.loss_by_feat(*args, last)
    assert all(loss.isfinite().all() for loss in losses.values())
    # The proposals of the encoder are of any class there.
    whole = {'encoder'} if 'two stages' in name else set()
    assert len(calls) == len(losses) // 3
    for path, (call,) in calls.items():
        scores, target, weight, _ = call
        if path in whole:
            assert weight is None or weight.dim() == 1
            continue
        images = torch.arange(2).repeat_interleave(len(scores) // 2)
        expected = loops(
            EXHAUSTIVE, images.tolist(), target.tolist(), torch.ones(len(scores)), scores.size(1)
        )
        assert weight.equal(expected), path
    with pytest.raises(UserError, match='has federated=True'):
        head.loss_by_feat(*query_inputs(name))


@pytest.mark.parametrize('kind', ['faster', 'cascade'])
def test_proposals_are_masked_by_image(kind):
    model = federated_detector(kind)
    heads = model.roi_head._box_heads()
    assert len(heads) == (3 if kind == 'cascade' else 1)
    calls, rois = [watch(head.loss_cls) for head in heads], []
    for head in heads:
        inner = head._federated_weight
        head._federated_weight = lambda r, *args, f=inner: rois.append(r) or f(r, *args)
    batch = make_batch()
    for sample, own in zip(batch['data_samples'], EXHAUSTIVE):
        sample.set_metainfo(dict(exhaustive_labels=own))
    data = model.data_preprocessor(batch, True)
    losses = model(**data, mode='loss')
    total = sum(v.sum() for k, v in losses.items() if k.endswith('loss_cls'))
    total.backward()
    assert len(calls) == len(rois) == len(heads)
    for ((scores, target, weight, _),), boxes in zip(calls, rois):
        expected = loops(
            EXHAUSTIVE,
            boxes[:, 0].long().tolist(),
            target.tolist(),
            torch.ones(len(scores)),
            scores.size(1),
        )
        assert weight.equal(expected)
    assert all(head.image_metas is None for head in heads)
    data = model.data_preprocessor(make_batch(), True)
    with pytest.raises(UserError, match="no 'exhaustive_labels'"):
        model(**data, mode='loss')
