"""Small dense heads and a batch for them, shared by tests."""

import copy
from pathlib import Path

import numpy as np
import torch
from mmdet.registry import MODELS as MMDET_MODELS
from mmdet.structures.mask import BitmapMasks
from mmengine.config import Config, ConfigDict
from mmengine.registry import DefaultScope
from mmengine.structures import InstanceData
from mmengine.utils import get_installed_path

from mmrank.registry import MODELS

CLASSES = 4
BOXES = ([[10.0, 10, 50, 60], [70, 20, 120, 70]], [[30.0, 40, 64, 80]])
OMIT = 'an argument that the head does not take'
STRIDES = [8, 16, 32]
ANCHORS = dict(
    type='mmdet.AnchorGenerator',
    ratios=[1.0],
    octave_base_scale=4,
    scales_per_octave=1,
    strides=STRIDES,
)
GIOU = dict(type='mmdet.GIoULoss', loss_weight=2.0)
CONFIGS = Path(get_installed_path('mmdet'), '.mim/configs')
#: What a small head has of its own, see :func:`head_config`.
_OF_SIZE = ('type', 'num_classes', 'in_channels', 'feat_channels', 'stacked_convs', 'loss_cls')


def _three_levels(value):
    """A setting of a stock head without what is of its last two levels."""
    if isinstance(value, dict):
        return {key: _three_levels(x) for key, x in value.items()}
    return value[:3] if isinstance(value, list | tuple) and len(value) == 5 else value


def stock(config, **changes):
    """Settings of a head as a config of mmdet has them."""
    model = Config.fromfile(CONFIGS / f'{config}.py').model
    head = {key: x for key, x in model.bbox_head.items() if key not in _OF_SIZE}
    return _three_levels(dict(head, train_cfg=model.get('train_cfg') or {})) | changes


HEADS = {
    'RetinaHead': stock(
        'retinanet/retinanet_r50_fpn_1x_coco',
        anchor_generator={**ANCHORS, 'scales_per_octave': 3},
        bbox_coder=dict(
            type='mmdet.DeltaXYWHBBoxCoder',
            target_means=[0.0] * 4,
            target_stds=[0.1, 0.1, 0.2, 0.2],
        ),
        reg_decoded_bbox=True,
        loss_bbox=GIOU,
    ),
    'ATSSHead': stock('atss/atss_r50_fpn_1x_coco', anchor_generator=ANCHORS),
    'FCOSHead': stock(
        'fcos/fcos_r50-caffe_fpn_gn-head_1x_coco',
        regress_ranges=((-1, 32), (32, 64), (64, 1e8)),
        loss_bbox=GIOU,
    ),
    'GFLHead': stock('gfl/gfl_r50_fpn_1x_coco'),
}
FOCAL = dict(type='mmdet.FocalLoss', use_sigmoid=True)
STABLE_AP = dict(type='mmrank.StableAPLoss')
TEST_CFG = dict(
    nms_pre=100,
    nms_post=100,
    min_bbox_size=0,
    score_thr=0.05,
    nms=dict(type='nms', iou_threshold=0.6),
    max_per_img=20,
    mask_thr_binary=0.5,
)


def head_kind(name, listwise):
    """What decides whether a stock head is listwise."""
    if listwise:
        return dict(type='mmrank.ListwiseHead', head_type=f'mmdet.{name}')
    return dict(type=f'mmdet.{name}')


def head_config(name, loss_cls, listwise=True, heads=HEADS, **kwargs):
    """Config of a small head, listwise unless set otherwise."""
    cfg = dict(
        head_kind(name, listwise),
        num_classes=CLASSES,
        in_channels=32,
        feat_channels=32,
        stacked_convs=1,
        loss_cls=loss_cls,
        test_cfg=TEST_CFG,
    )
    cfg.update(copy.deepcopy(heads[name]))
    cfg.update(kwargs)
    return {key: value for key, value in cfg.items() if value != OMIT}


def built(config, listwise=True):
    """The head of a config, initialised by seed 0."""
    settings = {x: ConfigDict(config[x]) for x in ('train_cfg', 'test_cfg') if x in config}
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmdet'):
        head = (MODELS if listwise else MMDET_MODELS).build({**config, **settings})
        head.init_weights()
    return head


def build_head(name, loss_cls, listwise=True, heads=HEADS, **kwargs):
    """The head of :func:`head_config`."""
    return built(head_config(name, loss_cls, listwise, heads, **kwargs), listwise)


def make_truths(boxes=BOXES, classes=CLASSES):
    """Objects of images, of one class after the other."""
    truths = []
    for of_image in boxes:
        box = torch.tensor(of_image).reshape(-1, 4)
        truths.append(InstanceData(bboxes=box, labels=torch.arange(len(box)) % classes))
    return truths


def box_masks(boxes, size=128):
    """Masks that fill their boxes, in an image of ``size`` x ``size``."""
    masks = np.zeros((len(boxes), size, size), dtype=np.uint8)
    for mask, (x1, y1, x2, y2) in zip(masks, boxes.int().tolist()):
        mask[y1:y2, x1:x2] = 1
    return BitmapMasks(masks, size, size)


def make_inputs(boxes=True):
    torch.manual_seed(1)
    features = [torch.randn(2, 32, 128 // s, 128 // s) for s in STRIDES]
    truths = make_truths(BOXES if boxes else ([], []))
    shapes = ('img_shape', 'pad_shape', 'batch_input_shape', 'ori_shape')
    metas = [dict(dict.fromkeys(shapes, (128, 128)), scale_factor=(1, 1))] * 2
    return features, truths, metas


def summed(loss):
    """A loss, or the sum of those of the levels."""
    return sum(loss) if isinstance(loss, (list, tuple)) else loss


def objective(losses):
    """The sum of what is named a loss."""
    return sum(summed(v) for k, v in losses.items() if 'loss' in k).sum()


def watch(loss):
    """The calls of a loss from now on: its arguments, and a dict of those given by name."""
    calls = []

    def note(_, args, kwargs):
        calls.append((*args, kwargs))

    loss.register_forward_pre_hook(note, with_kwargs=True)
    return calls


def head_losses(head, boxes=True):
    features, truths, metas = make_inputs(boxes)
    return head.loss_by_feat(*head(features), truths, metas)
