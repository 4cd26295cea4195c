"""Box heads that tell a ranking loss about the boxes."""

import pytest
import torch

pytest.importorskip('mmdet')
from mmdet.registry import MODELS as MMDET_MODELS
from mmdet.structures.bbox import bbox_overlaps
from mmengine.registry import init_default_scope
from small_heads import summed
from small_rcnn import STABLE_AP, build_detector, compute_losses

from mmrank.losses import RankingLoss
from mmrank.registry import MODELS

CLASSES = 3
GIOU = dict(type='mmdet.GIoULoss', loss_weight=2.0)
# Boxes of four RoIs, two with an object.
ROIS = torch.tensor(
    [[0.0, 10, 10, 50, 60], [0.0, 0, 0, 20, 20], [1.0, 30, 20, 70, 80], [1.0, 5, 5, 90, 90]]
)
LABELS = torch.tensor([2, CLASSES, 0, CLASSES])
TARGETS = torch.tensor([[12.0, 8, 55, 58], [28.0, 25, 66, 84]])
POSITIVE = torch.tensor([0, 2])


@MODELS.register_module()
class _Ranking(RankingLoss):
    """Records its arguments; a loss that any head can train on."""

    def forward(self, cls_score, target, weight=None, **kwargs):
        kwargs.pop('reduction_override')
        self.told, self.rows = kwargs, len(cls_score)
        loss = cls_score.square().sum()
        if self.box_input != 'loss':
            return loss
        return dict(loss_cls=loss, loss_bbox=3 * kwargs['box_loss'].sum())


@MODELS.register_module()
class _WantsQuality(_Ranking):
    box_input = 'quality'


@MODELS.register_module()
class _WantsLoss(_Ranking):
    box_input = 'loss'


def _build(loss='_Ranking', head_type='mmdet.Shared2FCBBoxHead', **kwargs):
    init_default_scope('mmdet')
    torch.manual_seed(0)
    kwargs = {'reg_decoded_bbox': True, 'loss_bbox': GIOU, **kwargs}
    loss = loss if isinstance(loss, dict) else dict(type=f'mmrank.{loss}')
    kind = dict(type=head_type)
    if not kwargs.pop('stock', False):
        kind = dict(type='mmrank.ListwiseBBoxHead', head_type=head_type)
    return MMDET_MODELS.build(
        dict(
            kind,
            in_channels=4,
            fc_out_channels=8,
            roi_feat_size=1,
            num_classes=CLASSES,
            loss_cls=loss,
            **kwargs,
        )
    )


def _losses(head, labels=LABELS, rois=ROIS):
    """Losses of random outputs, and the outputs."""
    torch.manual_seed(3)
    n = len(labels)
    scores = torch.randn(n, CLASSES, requires_grad=True)
    size = 4 if head.reg_class_agnostic else 4 * CLASSES
    boxes = (0.3 * torch.randn(n, size)).requires_grad_()
    has_object = labels < CLASSES
    targets = torch.zeros(n, 4)
    targets[has_object] = TARGETS[: has_object.sum()]
    if not head.reg_decoded_bbox:
        targets[has_object] = head.bbox_coder.encode(rois[has_object, 1:], targets[has_object])
    weights = has_object.float()[:, None].expand(-1, 4)
    losses = head.loss(scores, boxes, rois, labels, torch.ones(n), targets, weights)
    return losses, scores, boxes


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
    head = _build('_WantsQuality', **kwargs)
    losses, _, boxes = _losses(head)
    quality = head.loss_cls.told['quality']
    expected = bbox_overlaps(_decoded(head, boxes), TARGETS, is_aligned=True)
    assert quality.shape == (2,)
    assert not quality.requires_grad
    torch.testing.assert_close(quality, expected.detach(), rtol=0, atol=1e-6)
    assert losses['loss_bbox'] > 0
    plain, *_ = _losses(_build(**kwargs))
    assert torch.equal(losses['loss_bbox'], plain['loss_bbox'])


@pytest.mark.parametrize('agnostic', [True, False])
def test_box_loss_of_each_positive(agnostic):
    head = _build('_WantsLoss', reg_class_agnostic=agnostic)
    losses, scores, boxes = _losses(head)
    told = head.loss_cls.told['box_loss']
    giou = bbox_overlaps(_decoded(head, boxes), TARGETS, mode='giou', is_aligned=True)
    torch.testing.assert_close(told, 2 * (1 - giou))
    # What the loss returns takes the place of the host's entries.
    torch.testing.assert_close(losses['loss_bbox'], 3 * told.sum())
    assert losses['loss_cls'] == scores.square().sum()
    (gradient,) = torch.autograd.grad(losses['loss_bbox'], boxes)
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize('loss', ['_Ranking', '_WantsQuality', '_WantsLoss'])
def test_no_positive_and_no_proposal(loss):
    """The loss is called all the same: other ranks would wait for it."""
    head = _build(loss)
    for n in (4, 0):
        labels = torch.full((n,), CLASSES)
        losses, scores, boxes = _losses(head, labels, ROIS[:n])
        assert head.loss_cls.rows == n
        for values in head.loss_cls.told.values():
            assert values.shape == (0,)
        assert losses['loss_bbox'] == 0
        assert losses['acc_classes'] == 0
        (losses['loss_cls'] + losses['loss_bbox']).backward()
        assert scores.grad.shape == scores.shape
        assert (boxes.grad == 0).all()


def test_the_stock_head_gives_the_same():
    plain = dict(STABLE_AP, quality=0)
    ours, stock = _build(plain), _build(plain, stock=True)
    (a, *_), (b, *_) = _losses(ours), _losses(stock)
    assert a.keys() == b.keys() == {'loss_cls', 'acc_classes', 'loss_bbox'}
    for key, value in b.items():
        assert torch.equal(a[key], value), key
    assert ours.state_dict().keys() == stock.state_dict().keys()


def test_settings_are_filled_in():
    loss = _build(dict(type='mmrank.StableAPLoss')).loss_cls
    assert (loss.rho, loss.num_columns) == ('auto', CLASSES)
    assert _build(dict(STABLE_AP, rho=2)).loss_cls.rho == 2
    per_class = dict(type='mmrank.StableAPLoss', mode='per_class')
    assert len(_build(per_class).loss_cls.mean_positive.mean) == CLASSES
    # Rivals take num_classes by keyword arguments.
    rival = _build(dict(type='mmrank.APLoss')).loss_cls
    assert rival.num_columns == CLASSES


def test_average_over_the_positives():
    over_rois, *_ = _losses(_build())
    head = _build(box_average='positives')
    over_positives, _, boxes = _losses(head)
    giou = bbox_overlaps(_decoded(head, boxes), TARGETS, mode='giou', is_aligned=True)
    torch.testing.assert_close(over_positives['loss_bbox'], 2 * (1 - giou).mean())
    torch.testing.assert_close(over_rois['loss_bbox'], over_positives['loss_bbox'] * 2 / 4)


def test_balanced_boxes():
    plain, _, boxes = _losses(_build())
    (before,) = torch.autograd.grad(plain['loss_bbox'], boxes)
    balanced, scores, boxes = _losses(_build(balance_boxes=True))
    torch.testing.assert_close(balanced['loss_bbox'], balanced['loss_cls'])
    after = torch.autograd.grad(balanced['loss_bbox'], (boxes, scores), allow_unused=True)
    ratio = plain['loss_cls'] / plain['loss_bbox']
    torch.testing.assert_close(after[0], before * ratio)
    # The ratio is held fixed.
    assert after[1] is None
    empty, *_ = _losses(_build(balance_boxes=True), torch.full((4,), CLASSES))
    assert empty['loss_bbox'] == 0


@pytest.mark.parametrize('kind', ['faster', 'cascade'])
@pytest.mark.parametrize('loss', ['APLoss', 'ALRPLoss', 'RankSortLoss', 'DRLoss', 'MALLoss'])
def test_detectors_train_on_the_rivals(kind, loss):
    model = build_detector(
        kind,
        dict(
            type='mmrank.ListwiseBBoxHead',
            head_type='mmdet.Shared2FCBBoxHead',
            balance_boxes=loss == 'RankSortLoss',
            loss_cls=dict(type=f'mmrank.{loss}'),
        ),
        rpn_loss=dict(type=f'mmrank.{loss}'),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        losses = compute_losses(model)
        assert losses['loss_rpn_cls'] > 0
        assert summed(losses['loss_rpn_bbox']) > 0
        total = sum(summed(v) for k, v in losses.items() if 'loss' in k)
        assert total.isfinite()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    heads = model.roi_head.bbox_head
    for head in [heads] if kind == 'faster' else heads:
        for part in (head.fc_cls, head.fc_reg):
            assert part.weight.grad.abs().sum() > 0


def test_wrong_use_is_named():
    with pytest.raises(KeyError, match="head_type='mmdet.NoHead'"):
        _build(head_type='mmdet.NoHead')
    with pytest.raises(KeyError, match='mmrank.NoLoss'):
        _build('NoLoss')
    with pytest.raises(TypeError, match='SABLHead.*does not use the loss'):
        _build(head_type='mmdet.SABLHead')
    with pytest.raises(TypeError, match='CrossEntropyLoss is not a ranking'):
        _build(dict(type='mmdet.CrossEntropyLoss'))
    with pytest.raises(ValueError, match="box_average='boxes'"):
        _build(box_average='boxes')
    with pytest.raises(ValueError, match='set only one of them'):
        _build(box_average='positives', balance_boxes=True)
    with pytest.raises(ValueError, match='itself: remove'):
        _build('_WantsLoss', balance_boxes=True)
    with pytest.raises(ValueError, match='requires the boxes.*with_reg=False'):
        _build('_WantsQuality', with_reg=False)
    with pytest.raises(ValueError, match='requires decoded boxes.*reg_decoded_bbox=False'):
        _build('_WantsLoss', reg_decoded_bbox=False)
    with pytest.raises(ValueError, match="requires decoded.*'L1Loss'"):
        _build('_WantsLoss', loss_bbox=dict(type='mmdet.L1Loss'))
    with pytest.raises(ValueError, match='leaves the head without one'):
        _build(with_reg=False, balance_boxes=True)
    with pytest.raises(ValueError, match='no scores to rank'):
        _build(with_cls=False)
