"""Box heads that tell a ranking loss about the boxes."""

import copy

import pytest
import torch

pytest.importorskip('mmdet')
from mmdet.structures.bbox import bbox_overlaps
from small_box_heads import CLASSES, LABELS, ROIS, TARGETS, box_head_losses, build_box_head
from small_heads import GIOU, watch
from small_rcnn import STABLE_AP

POSITIVE = torch.tensor([0, 2])
#: Losses that are told nothing of the boxes, their IoU, and their own losses.
PLAIN = dict(STABLE_AP, quality=0)
RANK_SORT = dict(type='mmrank.RankSortLoss')
ALRP = dict(type='mmrank.ALRPLoss')


def _losses(head, labels=LABELS, rois=ROIS):
    """Losses of random outputs, and the outputs."""
    torch.manual_seed(3)
    scores = torch.randn(len(labels), CLASSES, requires_grad=True)
    size = 4 if head.reg_class_agnostic else 4 * CLASSES
    boxes = (0.3 * torch.randn(len(labels), size)).requires_grad_()
    return box_head_losses(head, scores, boxes, labels, rois), scores, boxes


def _decoded(head, boxes):
    """By hand: the boxes of the two positives."""
    boxes = boxes.view(len(boxes), -1, 4)
    columns = LABELS[POSITIVE] if boxes.size(1) > 1 else torch.zeros(2).long()
    return head.bbox_coder.decode(ROIS[POSITIVE, 1:], boxes[POSITIVE, columns])


@pytest.mark.parametrize('agnostic', [True, False])
@pytest.mark.parametrize('loss_bbox', [GIOU, dict(type='mmdet.SmoothL1Loss')])
def test_quality_is_the_iou_of_each_positive(agnostic, loss_bbox):
    """Also of the codes that a stock head has its box loss on, which keeps its bits."""
    decoded = loss_bbox is GIOU
    kwargs = dict(reg_class_agnostic=agnostic, reg_decoded_bbox=decoded, loss_bbox=loss_bbox)
    head = build_box_head(RANK_SORT, **kwargs)
    calls = watch(head.loss_cls)
    losses, _, boxes = _losses(head)
    ((*_, told),) = calls
    quality = told['quality']
    expected = bbox_overlaps(_decoded(head, boxes), TARGETS, is_aligned=True)
    assert quality.shape == (2,)
    assert not quality.requires_grad
    torch.testing.assert_close(quality, expected.detach(), rtol=0, atol=1e-6)
    assert losses['loss_bbox'] > 0
    plain, *_ = _losses(build_box_head(PLAIN, **kwargs))
    assert torch.equal(losses['loss_bbox'], plain['loss_bbox'])


@pytest.mark.parametrize('agnostic', [True, False])
def test_box_loss_of_each_positive(agnostic):
    head = build_box_head(ALRP, reg_class_agnostic=agnostic)
    direct, calls = copy.deepcopy(head.loss_cls), watch(head.loss_cls)
    losses, _, boxes = _losses(head)
    ((*args, told),) = calls
    giou = bbox_overlaps(_decoded(head, boxes), TARGETS, mode='giou', is_aligned=True)
    torch.testing.assert_close(told['box_loss'], 2 * (1 - giou))
    # What the loss returns takes the place of the host's entries.
    for key, value in direct(*args, **told).items():
        assert torch.equal(losses[key], value)
    (gradient,) = torch.autograd.grad(losses['loss_bbox'], boxes)
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize('loss', [PLAIN, RANK_SORT, ALRP])
def test_no_positive_and_no_proposal(loss):
    """The loss is called all the same: other ranks would wait for it."""
    head = build_box_head(loss)
    calls = watch(head.loss_cls)
    for n in (4, 0):
        losses, scores, boxes = _losses(head, torch.full((n,), CLASSES), ROIS[:n])
        ranked, *_, told = calls[-1]
        assert len(ranked) == n
        for name in ('quality', 'box_loss'):
            assert name not in told or told[name].shape == (0,)
        assert losses['loss_bbox'] == 0
        assert losses['acc_classes'] == 0
        (losses['loss_cls'] + losses['loss_bbox']).backward()
        assert scores.grad.shape == scores.shape
        assert (boxes.grad == 0).all()


def test_the_stock_head_gives_the_same():
    ours, stock = build_box_head(PLAIN), build_box_head(PLAIN, listwise=False)
    (a, *_), (b, *_) = _losses(ours), _losses(stock)
    assert a.keys() == b.keys() == {'loss_cls', 'acc_classes', 'loss_bbox'}
    for key, value in b.items():
        assert torch.equal(a[key], value), key
    assert ours.state_dict().keys() == stock.state_dict().keys()
    assert (ours.loss_cls.rho, ours.loss_cls.num_columns) == ('auto', CLASSES)
    assert build_box_head(dict(STABLE_AP, rho=2)).loss_cls.rho == 2
    # Rivals take num_classes by keyword arguments.
    assert build_box_head(dict(type='mmrank.APLoss')).loss_cls.num_columns == CLASSES


def test_average_over_the_positives():
    over_rois, *_ = _losses(build_box_head(PLAIN))
    head = build_box_head(PLAIN, box_average='positives')
    over_positives, _, boxes = _losses(head)
    giou = bbox_overlaps(_decoded(head, boxes), TARGETS, mode='giou', is_aligned=True)
    torch.testing.assert_close(over_positives['loss_bbox'], 2 * (1 - giou).mean())
    torch.testing.assert_close(over_rois['loss_bbox'], over_positives['loss_bbox'] * 2 / 4)


def test_balanced_boxes():
    plain, _, boxes = _losses(build_box_head(PLAIN))
    (before,) = torch.autograd.grad(plain['loss_bbox'], boxes)
    balanced, scores, boxes = _losses(build_box_head(PLAIN, balance_boxes=True))
    torch.testing.assert_close(balanced['loss_bbox'], balanced['loss_cls'])
    after = torch.autograd.grad(balanced['loss_bbox'], (boxes, scores), allow_unused=True)
    ratio = plain['loss_cls'] / plain['loss_bbox']
    torch.testing.assert_close(after[0], before * ratio)
    # The ratio is held fixed.
    assert after[1] is None
    empty, *_ = _losses(build_box_head(PLAIN, balance_boxes=True), torch.full((4,), CLASSES))
    assert empty['loss_bbox'] == 0
