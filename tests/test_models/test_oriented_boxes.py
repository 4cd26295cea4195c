"""Oriented boxes: the heads of mmrotate, where it is installed."""

import math

import pytest
import torch

pytest.importorskip('mmdet')
from mmengine.config import ConfigDict
from mmengine.registry import DefaultScope
from mmengine.structures import InstanceData
from small_heads import CLASSES, STABLE_AP, STRIDES, make_inputs
from torch import nn

from mmrank.models.dense_heads import BoxCollector
from mmrank.registry import MODELS

MAX_IOU = dict(
    type='mmdet.MaxIoUAssigner',
    pos_iou_thr=0.5,
    neg_iou_thr=0.4,
    min_pos_iou=0,
    ignore_iof_thr=-1,
    iou_calculator=dict(type='mmrotate.RBboxOverlaps2D'),
)


class _NoLoss(nn.Module):
    def forward(self, pred, *args, **kwargs):
        return pred.new_zeros(())


def test_quality_is_the_iou_of_oriented_boxes():
    """Two unit-high boxes at a right angle share a square."""
    boxes = torch.tensor([[8.0, 8, 4, 1, 0], [8, 8, 4, 2, 0.5]])
    turned = boxes.clone()
    turned[0, 4] = math.pi / 2
    collector = BoxCollector(_NoLoss(), 'quality')
    collector.open()
    collector(boxes, turned)
    quality = collector.close([torch.tensor([0, 1])], 2)['quality']
    torch.testing.assert_close(quality, torch.tensor([1 / 7, 1.0]))


def test_rotated_retina_head():
    pytest.importorskip('mmrotate.models')
    from mmrotate.structures import RotatedBoxes

    config = dict(
        type='mmrank.ListwiseHead',
        head_type='mmrotate.RotatedRetinaHead',
        loss_cls=STABLE_AP,
        num_classes=CLASSES,
        in_channels=32,
        feat_channels=32,
        stacked_convs=1,
        anchor_generator=dict(
            type='mmrotate.FakeRotatedAnchorGenerator',
            angle_version='le90',
            octave_base_scale=4,
            scales_per_octave=1,
            ratios=[1.0],
            strides=STRIDES,
        ),
        bbox_coder=dict(type='mmrotate.DeltaXYWHTRBBoxCoder', angle_version='le90'),
        loss_bbox=dict(type='mmdet.L1Loss'),
        train_cfg=ConfigDict(
            assigner=MAX_IOU,
            sampler=dict(type='mmdet.PseudoSampler'),
            allowed_border=-1,
            pos_weight=-1,
            debug=False,
        ),
        test_cfg=ConfigDict(
            nms_pre=100,
            min_bbox_size=0,
            score_thr=0.0,
            nms=dict(type='nms_rotated', iou_threshold=0.1),
            max_per_img=20,
        ),
    )
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmrotate'):
        head = MODELS.build(config)
    head.init_weights()
    features, _, metas = make_inputs()
    boxes = torch.tensor([[30.0, 35, 40, 50, 0.3], [95, 45, 50, 40, -0.2]])
    for objects in (True, False):
        truths = [
            InstanceData(
                bboxes=RotatedBoxes(boxes[: 2 * objects]), labels=torch.arange(2 * objects)
            )
            for _ in metas
        ]
        losses = head.loss_by_feat(*head(features), truths, metas)
        assert (losses['loss_cls'] > 0) == objects
        (losses['loss_cls'] + sum(losses['loss_bbox'])).backward()
    head.eval()
    with torch.no_grad():
        found = head.predict_by_feat(*head(features), batch_img_metas=metas)
    assert all(len(f) > 0 and f.bboxes.tensor.size(1) == 5 for f in found)
