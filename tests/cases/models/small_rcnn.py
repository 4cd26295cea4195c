"""Small two-stage detectors and a batch for them, shared by tests."""

import copy
from pathlib import Path

import torch
from mmdet.registry import MODELS
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmengine.structures import InstanceData
from small_heads import STABLE_AP, box_masks

CONFIGS = Path(__file__).parents[3] / 'configs'
CLASSES = 4
ALL_ROIS = dict(
    type='RandomSampler', num=1000000, pos_fraction=1.0, neg_pos_ub=-1, add_gt_as_proposals=True
)
LISTWISE_BOXES = dict(type='mmrank.ListwiseBBoxHead', head_type='mmdet.Shared2FCBBoxHead')
RANKING_RPN = dict(type='mmrank.ListwiseHead', head_type='mmdet.RPNHead', loss_cls=STABLE_AP)
MASK_HEAD = dict(
    type='FCNMaskHead',
    num_convs=1,
    in_channels=16,
    conv_out_channels=16,
    num_classes=CLASSES,
    loss_mask=dict(type='CrossEntropyLoss', use_mask=True),
)


def detector_config(kind='faster', bbox_head=None):
    """Config of a tiny detector whose RPN and R-CNN rank.

    Args:
        kind: 'faster', 'mask' or 'cascade' (3 stages).
        bbox_head: What to change in the stock box head.
    """
    path = CONFIGS / '_base_/models/faster-rcnn_r18_fpn_small.py'
    cfg = Config.fromfile(path).model
    cfg.backbone.base_channels = 8
    cfg.neck.in_channels = [8, 16, 32, 64]
    cfg.neck.out_channels = 16
    cfg.rpn_head.update(copy.deepcopy(RANKING_RPN))
    cfg.rpn_head.update(in_channels=16, feat_channels=16)
    cfg.train_cfg.rpn.sampler = dict(type='PseudoSampler')
    cfg.train_cfg.rpn_proposal.max_per_img = 32
    cfg.test_cfg.rpn.max_per_img = 32
    cfg.train_cfg.rcnn.sampler = copy.deepcopy(ALL_ROIS)
    roi = cfg.roi_head
    roi.bbox_roi_extractor.out_channels = 16
    head = roi.bbox_head
    head.update(in_channels=16, fc_out_channels=16, num_classes=CLASSES)
    head.loss_cls = copy.deepcopy(STABLE_AP)
    head.update(copy.deepcopy(bbox_head or {}))
    if kind == 'mask':
        cfg.type = 'MaskRCNN'
        roi.mask_roi_extractor = copy.deepcopy(roi.bbox_roi_extractor)
        roi.mask_roi_extractor.roi_layer.output_size = 14
        roi.mask_head = copy.deepcopy(MASK_HEAD)
        cfg.train_cfg.rcnn.mask_size = 28
        cfg.test_cfg.rcnn.mask_thr_binary = 0.5
    if kind == 'cascade':
        cfg.type = 'CascadeRCNN'
        roi.type = 'CascadeRoIHead'
        roi.num_stages, roi.stage_loss_weights = 3, [1, 0.5, 0.25]
        roi.bbox_head = [copy.deepcopy(head) for _ in range(3)]
        cfg.train_cfg.rcnn = [copy.deepcopy(cfg.train_cfg.rcnn) for _ in range(3)]
        for stage, threshold in zip(cfg.train_cfg.rcnn, (0.5, 0.6, 0.7)):
            for name in ('pos_iou_thr', 'neg_iou_thr', 'min_pos_iou'):
                stage.assigner[name] = threshold
    return cfg


def build_detector(*args, **kwargs):
    """The detector of :func:`detector_config`, initialised by seed 0."""
    return _built(detector_config(*args, **kwargs))


def _built(config):
    init_default_scope('mmdet')
    torch.manual_seed(0)
    model = MODELS.build(config)
    model.init_weights()
    return model.train()


def federated_detector(kind='faster', bbox_head=LISTWISE_BOXES):
    """A small detector whose RoI head is federated; None leaves the stock box head."""
    config = detector_config(kind, bbox_head)
    config.roi_head.head_type = f'mmdet.{config.roi_head.type}'
    config.roi_head.type = 'mmrank.FederatedRoIHead'
    return _built(config)


def make_batch(objects=True, masks=False, size=96):
    """Two images of noise, three boxes in all."""
    torch.manual_seed(1)
    samples = []
    for boxes in ([[8, 8, 56, 60], [50, 20, 90, 70]], [[20, 30, 64, 80]]):
        boxes = torch.tensor(boxes, dtype=torch.float)
        labels = torch.arange(len(boxes)) + 1
        if not objects:
            boxes, labels = boxes[:0], labels[:0]
        truth = InstanceData(bboxes=boxes, labels=labels)
        if masks:
            truth.masks = box_masks(boxes, size)
        sample = DetDataSample()
        sample.gt_instances = truth
        shapes = dict.fromkeys(('img_shape', 'ori_shape', 'pad_shape'), (size, size))
        sample.set_metainfo(dict(shapes, scale_factor=(1.0, 1.0)))
        samples.append(sample)
    images = torch.randint(0, 255, (2, 3, size, size), dtype=torch.uint8)
    return dict(inputs=list(images), data_samples=samples)
