"""What losses receive on the boxes of dense heads, oriented ones too."""

import math

import pytest
import torch
from torch import nn

pytest.importorskip('mmdet')
from covered_heads import MORE_HEADS
from mmdet.structures.bbox import bbox_overlaps, distance2bbox
from small_heads import (
    CLASSES,
    GIOU,
    HEADS,
    STRIDES,
    build_head,
    head_losses,
    make_inputs,
    make_truths,
    summed,
    watch,
)

from mmrank.losses.ranking.rank_sort import box_balance
from mmrank.mmcv_ops import compiled_extension
from mmrank.models.dense_heads.collectors import BoxCollector
from mmrank.registry import MODELS

NAMES = ['RetinaHead', 'ATSSHead', 'FCOSHead', 'GFLHead']
_CODES = dict(reg_decoded_bbox=False, loss_bbox=dict(type='mmdet.SmoothL1Loss', beta=0.11))
#: As in stock configs: their box loss is on codes.
ON_CODES = {
    'RetinaHead': {**HEADS['RetinaHead'], **_CODES},
    'RPNHead': {**MORE_HEADS['RPNHead'], **_CODES},
}

#: Losses that are told nothing of the boxes, their IoU, and their own losses.
PLAIN = dict(type='mmrank.StableAPLoss', quality=0)
RANK_SORT = dict(type='mmrank.RankSortLoss')
ALRP = dict(type='mmrank.ALRPLoss')


class _NoLoss(nn.Module):
    def forward(self, pred, *args, **kwargs):
        return pred.new_zeros(())


def _decode(name, head, outs):
    """Decoded boxes of all rows, (levels of (images, rows, 4))."""
    sizes = [score.shape[-2:] for score in outs[0]]
    priors = head.prior_generator.grid_priors(sizes, device='cpu')
    boxes = []
    for code, prior, stride in zip(outs[1], priors, STRIDES):
        code = code.permute(0, 2, 3, 1).flatten(1, 2)
        for image in code:
            if name == 'FCOSHead':
                boxes.append(distance2bbox(prior, image.reshape(-1, 4)))
            elif name == 'GFLHead':
                centre = (prior[:, :2] + prior[:, 2:]) / 2
                bins = image.reshape(-1, 4, 17).softmax(-1)
                distance = (bins * torch.arange(17.0)).sum(-1) * stride
                boxes.append(distance2bbox(centre, distance))
            else:
                boxes.append(head.bbox_coder.decode(prior, image.reshape(-1, 4)))
    return boxes


def _expected(name, head, outs, truths, labels):
    boxes = _decode(name, head, outs)
    images = torch.cat([torch.full((len(b),), i % 2) for i, b in enumerate(boxes)])
    rows = (labels < head.num_classes).nonzero().squeeze(1)
    target = torch.stack(
        [
            truths[images[row]].bboxes[(truths[images[row]].labels == labels[row]).nonzero()[0, 0]]
            for row in rows
        ]
    )
    counts = [len(b) * 2 for b in boxes[::2]]
    levels = [int((part < head.num_classes).sum()) for part in labels.split(counts)]
    pred = torch.cat(boxes)[rows]
    iou, giou = (bbox_overlaps(pred, target, x, is_aligned=True) for x in ('iou', 'giou'))
    return iou, giou, levels


def check_quality(name, truths, **kwargs):
    """IoUs as by hand, and a box loss with the host's bits; the head, its losses, GIoUs, levels."""
    features, _, metas = make_inputs()
    head = build_head(name, RANK_SORT, **kwargs)
    calls = watch(head.loss_cls.loss)
    outs = head(features)
    losses = head.loss_by_feat(*outs, truths, metas)
    ((_, labels, *_, told),) = calls
    iou, giou, levels = _expected(name, head, outs, truths, labels)
    assert 'box_loss' not in told
    assert not told['quality'].requires_grad
    assert told['quality'].max() > 0
    torch.testing.assert_close(told['quality'], iou.detach(), rtol=0, atol=1e-6)
    # As without a collector.
    stock = build_head(name, PLAIN, **kwargs)
    plain = stock.loss_by_feat(*stock(features), truths, metas)
    (key,) = (key for key in losses if 'bbox' in key)
    found = losses[key], plain[key]
    assert all(map(torch.equal, *([x] if torch.is_tensor(x) else x for x in found)))
    return head, outs, losses[key], giou, levels


@pytest.mark.parametrize('name', ON_CODES)
def test_codes_are_decoded_for_the_quality(name):
    """IoUs with the objects as by hand; the host's own box loss, on codes, keeps its bits."""
    _, truths, metas = make_inputs()
    if name == 'RPNHead':  # one object an image, of the one class
        truths = [truth[:1] for truth in truths]
    head, outs, losses, giou, _ = check_quality(name, truths, heads=ON_CODES)
    assert len(giou) > 2
    assert sum(losses) > 0
    calls = watch(head.loss_cls.loss)
    empty = head.loss_by_feat(*outs, [truth[:0] for truth in truths], metas)
    assert calls[-1][-1]['quality'].shape == (0,)
    (key,) = (key for key in empty if 'bbox' in key)
    sum(map(sum, (empty[key], losses))).backward()
    with pytest.raises(ValueError, match='reg_decoded_bbox=False; set'):
        build_head(name, ALRP, heads=ON_CODES)


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('few', [False, True])
def test_boxes_are_passed_row_by_row(name, few):
    """IoUs and GIoU losses as computed by hand from the head's outputs."""
    features, truths, metas = make_inputs()
    if few:
        truths = make_truths([[[10.0, 10, 42, 44]], []])
    *_, giou, levels = check_quality(name, truths)
    if few:
        assert 0 in levels
        assert sum(levels) > 0
    head = build_head(name, ALRP)
    calls = watch(head.loss_cls.loss)
    losses = head.loss_by_feat(*head(features), truths, metas)
    ((*_, told),) = calls
    expected = GIOU['loss_weight'] * (1 - giou)
    torch.testing.assert_close(told['box_loss'], expected, rtol=1e-4, atol=1e-5)
    assert losses['loss_bbox'].dim() == 0
    losses['loss_bbox'].backward()
    # A level without positives is on the graph too.
    grads = [p.grad for n, p in head.named_parameters() if 'reg' in n]
    assert all(g is not None for g in grads)
    assert any(g.abs().sum() > 0 for g in grads)


def test_boxes_that_do_not_fit_are_refused():
    collector = BoxCollector(_NoLoss(), 'quality')
    boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0]] * 3)
    collector.open()
    collector(boxes, boxes)
    with pytest.raises(RuntimeError, match='received 3 boxes, but 1 of the 5'):
        collector.close([torch.tensor([4, 4, 0, 4, 4])], 4)
    collector.open()
    with pytest.raises(RuntimeError, match='received 0 boxes, but 1 of the 2'):
        collector.close([torch.tensor([4, 0])], 4)


@pytest.mark.parametrize('kind', ['quality', 'loss'])
def test_large_boxes_in_half_precision(kind):
    """Their areas are beyond what float16 holds."""

    def close(dtype):
        collector = BoxCollector(MODELS.build(GIOU), kind)
        collector.open()
        pred = torch.tensor([[0.0, 0.0, 640.0, 512.0]], dtype=dtype)
        collector(pred, pred + 16)
        (values,) = collector.close([torch.tensor([0])], 4).values()
        return values

    told = close(torch.float16)
    torch.testing.assert_close(told, close(torch.float32))


def test_balance_is_safe_at_zero():
    zero, two = torch.tensor(0.0), torch.tensor(2.0, requires_grad=True)
    assert box_balance(torch.tensor(3.0), two) == 1.5
    assert not box_balance(torch.tensor(3.0), two).requires_grad
    assert box_balance(torch.tensor(3.0), zero) == 1
    assert box_balance(zero, zero) == 1
    assert box_balance(torch.tensor(float('nan')), two) == 1


@pytest.mark.parametrize('name', ['RetinaHead', 'ATSSHead', 'GFLHead'])
def test_label_weights_of_a_head_reach_the_loss(name):
    """As sampling by importance, or pos_weight of train_cfg, weighs boxes."""
    head = build_head(name, dict(type='mmrank.APLoss', quality=0))
    plain = summed(head_losses(head)['loss_cls'])
    head.train_cfg.pos_weight = 3.0
    calls = watch(head.loss_cls.loss)
    weighted = summed(head_losses(head)['loss_cls'])
    scores, target, weight, _ = calls[0]
    weight = torch.where(target < CLASSES, 3.0, weight)
    assert float(weighted) == pytest.approx(float(head.loss_cls.loss(scores, target, weight)))
    assert weighted != plain


def test_quality_is_the_iou_of_oriented_boxes():
    """Two unit-high boxes at a right angle share a square."""
    boxes = torch.tensor([[8.0, 8, 4, 1, 0], [8, 8, 4, 2, 0.5]])
    turned = boxes.clone()
    turned[0, 4] = math.pi / 2
    collector = BoxCollector(_NoLoss(), 'quality')
    collector.open()
    collector(boxes, turned)
    if compiled_extension() is None:
        with pytest.raises(NotImplementedError, match="'box_iou_rotated'.*--compile-mmcv"):
            collector.close([torch.tensor([0, 1])], 2)
        return
    quality = collector.close([torch.tensor([0, 1])], 2)['quality']
    torch.testing.assert_close(quality, torch.tensor([1 / 7, 1.0]))
