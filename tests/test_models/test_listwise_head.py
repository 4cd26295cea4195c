import copy

import pytest
import torch

pytest.importorskip('mmdet')
from mmdet.registry import MODELS as MMDET_MODELS
from mmengine.registry import DefaultScope
from mmengine.structures import InstanceData

from mmrank.models import StableAPLoss
from mmrank.registry import MODELS

CLASSES = 4
STRIDES = [8, 16, 32]
ANCHORS = dict(
    type='mmdet.AnchorGenerator',
    ratios=[1.0],
    octave_base_scale=4,
    scales_per_octave=1,
    strides=STRIDES,
)
CODER = dict(
    type='mmdet.DeltaXYWHBBoxCoder',
    target_means=[0.0] * 4,
    target_stds=[0.1, 0.1, 0.2, 0.2],
)
GIOU = dict(type='mmdet.GIoULoss', loss_weight=2.0)
CENTERNESS = dict(type='mmdet.CrossEntropyLoss', use_sigmoid=True)
ATSS = dict(
    assigner=dict(type='mmdet.ATSSAssigner', topk=9),
    allowed_border=-1,
    pos_weight=-1,
    debug=False,
)
MAX_IOU = dict(
    assigner=dict(
        type='mmdet.MaxIoUAssigner',
        pos_iou_thr=0.5,
        neg_iou_thr=0.4,
        min_pos_iou=0,
        ignore_iof_thr=-1,
    ),
    sampler=dict(type='mmdet.PseudoSampler'),
    allowed_border=-1,
    pos_weight=-1,
    debug=False,
)
HEADS = {
    'RetinaHead': dict(
        anchor_generator={**ANCHORS, 'scales_per_octave': 3},
        bbox_coder=CODER,
        reg_decoded_bbox=True,
        loss_bbox=GIOU,
        train_cfg=MAX_IOU,
    ),
    'ATSSHead': dict(
        anchor_generator=ANCHORS,
        bbox_coder=CODER,
        loss_bbox=GIOU,
        loss_centerness=CENTERNESS,
        train_cfg=ATSS,
    ),
    'FCOSHead': dict(
        strides=STRIDES,
        regress_ranges=((-1, 32), (32, 64), (64, 1e8)),
        loss_bbox=GIOU,
        loss_centerness=CENTERNESS,
        train_cfg={},
    ),
    'GFLHead': dict(
        anchor_generator={**ANCHORS, 'octave_base_scale': 8},
        bbox_coder=dict(type='mmdet.DistancePointBBoxCoder'),
        loss_bbox=GIOU,
        loss_dfl=dict(type='mmdet.DistributionFocalLoss', loss_weight=0.25),
        train_cfg=ATSS,
    ),
}
FOCAL = dict(type='mmdet.FocalLoss', use_sigmoid=True)
STABLE_AP = dict(type='mmrank.StableAPLoss')
TEST_CFG = dict(
    nms_pre=100,
    min_bbox_size=0,
    score_thr=0.05,
    nms=dict(type='nms', iou_threshold=0.6),
    max_per_img=20,
)


def _build(name, loss_cls, listwise=True, **kwargs):
    kind = dict(type=f'mmdet.{name}')
    if listwise:
        kind = dict(type='mmrank.ListwiseHead', head_type=f'mmdet.{name}')
    cfg = dict(
        kind,
        num_classes=CLASSES,
        in_channels=32,
        feat_channels=32,
        stacked_convs=1,
        loss_cls=loss_cls,
        test_cfg=TEST_CFG,
        **copy.deepcopy(HEADS[name]),
        **kwargs,
    )
    for part in ('train_cfg', 'test_cfg'):
        cfg[part] = _attributes(cfg[part])
    torch.manual_seed(0)
    registry = MODELS if listwise else MMDET_MODELS
    with DefaultScope.overwrite_default_scope('mmdet'):
        head = registry.build(cfg)
        head.init_weights()
    return head


def _attributes(cfg):
    from mmengine.config import ConfigDict

    return ConfigDict(cfg)


def _inputs(boxes=True):
    torch.manual_seed(1)
    features = [torch.randn(2, 32, 128 // s, 128 // s) for s in STRIDES]
    truths = []
    for boxes_of_image in (
        [[10, 10, 50, 60], [70, 20, 120, 70]],
        [[30, 40, 64, 80]],
    ):
        box = torch.tensor(boxes_of_image, dtype=torch.float)
        label = torch.arange(len(box)) % CLASSES
        if not boxes:
            box, label = box[:0], label[:0]
        truths.append(InstanceData(bboxes=box, labels=label))
    metas = [
        dict(
            img_shape=(128, 128),
            pad_shape=(128, 128),
            scale_factor=(1, 1),
            batch_input_shape=(128, 128),
            ori_shape=(128, 128),
        )
    ] * 2
    return features, truths, metas


def _losses(head, boxes=True):
    features, truths, metas = _inputs(boxes)
    return head.loss_by_feat(*head(features), truths, metas)


def _total(value):
    return sum(value) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize('name', ['RetinaHead', 'ATSSHead', 'FCOSHead'])
def test_gathering_changes_nothing_for_a_pointwise_loss(name):
    """Focal loss of the gathered scores is the sum of the levels' losses."""
    stock = _losses(_build(name, FOCAL, listwise=False))
    ours = _losses(_build(name, FOCAL))
    assert stock.keys() == ours.keys()
    for key, value in stock.items():
        torch.testing.assert_close(_total(ours[key]), _total(value))


@pytest.mark.parametrize('name', list(HEADS))
@pytest.mark.parametrize('mode', ['flatten', 'per_class'])
def test_heads_train_on_one_ranking_of_all_levels(name, mode):
    head = _build(name, dict(STABLE_AP, mode=mode))
    loss = head.loss_cls.loss
    assert isinstance(loss, StableAPLoss)
    assert (loss.num_classes, loss.rho) == (CLASSES, 1.0)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
    values = []
    for _ in range(8):
        losses = _losses(head)
        assert losses['loss_cls'].dim() == 0
        total = sum(_total(v) for k, v in losses.items() if 'loss' in k)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        values.append(losses['loss_cls'].item())
    assert values[-1] < values[0]
    assert all(p.grad is not None for p in head.parameters())
    assert loss.mean_positive.num_updates.max() == 8
    positives = loss.diagnostics['num_positive']
    assert 0 < positives < 200


@pytest.mark.parametrize('name', list(HEADS))
def test_a_batch_without_objects(name):
    head = _build(name, STABLE_AP)
    losses = _losses(head, boxes=False)
    assert losses['loss_cls'] == 0
    sum(_total(v) for k, v in losses.items() if 'loss' in k).backward()
    for parameter in head.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    assert head.loss_cls.loss.mean_positive.num_updates.item() == 0


@pytest.mark.parametrize('name', list(HEADS))
@pytest.mark.parametrize('mode', ['flatten', 'per_class'])
def test_centred_scores_at_test_time(name, mode):
    """The mean positive score shows as 0.5 and no ranking changes."""

    def predict(centre):
        head = _build(name, dict(STABLE_AP, mode=mode), centre_scores=centre)
        head.loss_cls.loss.mean_positive.mean.fill_(-4.0)
        features, _, metas = _inputs()
        outs = head(features)
        results = head.predict_by_feat(*outs, batch_img_metas=metas)
        return outs[0], results

    logits, centred = predict(True)
    _, plain = predict(False)
    # Logits start near -4.6: a threshold of 0.05 drops them all uncentred.
    assert sum(len(r) for r in plain) == 0
    assert sum(len(r) for r in centred) > 0
    if name != 'ATSSHead' and name != 'FCOSHead':
        top = torch.cat([x.flatten() for x in logits]).max()
        assert max(r.scores.max() for r in centred).item() == pytest.approx(
            (top + 4).sigmoid().item(), abs=1e-5
        )


def test_centre_is_per_class_where_the_means_are():
    head = _build('RetinaHead', dict(STABLE_AP, mode='per_class'))
    centre = torch.tensor([1.0, 2.0, 3.0, 4.0])
    scores = torch.zeros(2, 3 * CLASSES, 5, 5)
    moved = head._subtract(scores, centre)
    # Retina's channels are (anchor, class) with the class running fastest.
    assert moved.view(2, 3, CLASSES, 25)[0, :, 2].unique().item() == -3


def test_state_is_saved_with_the_head():
    head = _build('ATSSHead', STABLE_AP)
    _losses(head)
    state = head.state_dict()
    assert state['loss_cls.loss.mean_positive.num_updates'].item() == 1
    other = _build('ATSSHead', STABLE_AP)
    other.load_state_dict(state)
    assert torch.equal(
        other.loss_cls.loss.mean_positive.mean,
        head.loss_cls.loss.mean_positive.mean,
    )
    assert copy.deepcopy(head).loss_cls.loss is not head.loss_cls.loss


def test_explicit_settings_win_over_the_defaults():
    head = _build('RetinaHead', dict(STABLE_AP, rho='batch'))
    assert head.loss_cls.loss.rho is None


def test_bad_configuration_is_named():
    with pytest.raises(KeyError, match="head_type='mmdet.NoHead'"):
        MODELS.build(
            dict(
                type='mmrank.ListwiseHead',
                head_type='mmdet.NoHead',
                loss_cls=STABLE_AP,
            )
        )
    with pytest.raises(KeyError, match='mmrank.NoLoss'):
        _build('RetinaHead', dict(type='mmrank.NoLoss'))
    head = _build('RetinaHead', STABLE_AP)
    with pytest.raises(RuntimeError, match='outside loss_by_feat'):
        head.loss_cls(torch.zeros(1, 4), torch.zeros(1))


def test_an_interrupted_pass_leaves_nothing_behind():
    head = _build('RetinaHead', STABLE_AP)
    features, truths, metas = _inputs()
    with pytest.raises(Exception, match='.*'):
        head.loss_by_feat(*head(features), truths[:1], metas)
    losses = _losses(head)
    fresh = _losses(_build('RetinaHead', STABLE_AP))
    torch.testing.assert_close(losses['loss_cls'], fresh['loss_cls'])
