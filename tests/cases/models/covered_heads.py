"""One small instance of each further mmdet head, shared by tests.

The heads of ``small_heads.HEADS`` and these are what the README's table
names.
"""

import numpy as np
import torch
from mmdet.structures.mask import BitmapMasks
from mmengine.logging import MessageHub
from small_heads import (
    ANCHORS,
    ATSS,
    CODER,
    GIOU,
    HEADS,
    MAX_IOU,
    OMIT,
    STRIDES,
    build_head,
    make_inputs,
)

_FOCAL = dict(type='mmdet.FocalLoss', use_sigmoid=True)
_SMOOTH = dict(type='mmdet.SmoothL1Loss', beta=0.11)
_POINTS = dict(allowed_border=-1, pos_weight=-1, debug=False)
_APPROX = dict(
    type='mmdet.ApproxMaxIoUAssigner',
    pos_iou_thr=0.5,
    neg_iou_thr=0.4,
    min_pos_iou=0.0,
    ignore_iof_thr=-1,
)
_TWO_GENERATORS = dict(
    approx_anchor_generator=dict(
        type='mmdet.AnchorGenerator',
        octave_base_scale=4,
        scales_per_octave=3,
        ratios=[1.0],
        strides=STRIDES,
    ),
    square_anchor_generator=dict(
        type='mmdet.AnchorGenerator', ratios=[1.0], scales=[4], strides=STRIDES
    ),
)
_GUIDED = dict(
    **_TWO_GENERATORS,
    anchor_coder=CODER,
    bbox_coder=CODER,
    loc_filter_thr=0.01,
    loss_loc=_FOCAL,
    loss_shape=dict(type='mmdet.BoundedIoULoss', beta=0.2),
    reg_decoded_bbox=True,
    loss_bbox=GIOU,
    train_cfg=dict(
        ga_assigner=dict(_APPROX, min_pos_iou=0.4),
        ga_sampler=dict(
            type='mmdet.RandomSampler',
            num=256,
            pos_fraction=0.5,
            neg_pos_ub=-1,
            add_gt_as_proposals=False,
        ),
        assigner=MAX_IOU['assigner'],
        sampler=dict(type='mmdet.PseudoSampler'),
        center_ratio=0.2,
        ignore_ratio=0.5,
        **_POINTS,
    ),
)
_WIDE_ANCHORS = {**ANCHORS, 'octave_base_scale': 8}
_RTMDET = dict(
    anchor_generator=dict(type='mmdet.MlvlPointGenerator', offset=0, strides=STRIDES),
    bbox_coder=dict(type='mmdet.DistancePointBBoxCoder'),
    loss_bbox=GIOU,
    with_objectness=False,
    train_cfg=dict(assigner=dict(type='mmdet.DynamicSoftLabelAssigner', topk=13), **_POINTS),
)
_RETINA = dict(
    anchor_generator={**ANCHORS, 'scales_per_octave': 3}, bbox_coder=CODER, train_cfg=MAX_IOU
)

MORE_HEADS = {
    'BoxInstBboxHead': HEADS['FCOSHead'],
    'CondInstBboxHead': HEADS['FCOSHead'],
    'DDODHead': dict(
        anchor_generator=_WIDE_ANCHORS,
        bbox_coder=CODER,
        loss_bbox=GIOU,
        train_cfg=dict(
            assigner=dict(type='mmdet.ATSSAssigner', topk=9, alpha=0.8),
            reg_assigner=dict(type='mmdet.ATSSAssigner', topk=9, alpha=0.5),
            **_POINTS,
        ),
    ),
    'FoveaHead': dict(
        strides=STRIDES,
        base_edge_list=[16, 32, 64],
        scale_ranges=((1, 64), (32, 128), (64, 256)),
        sigma=0.4,
        loss_bbox=_SMOOTH,
        train_cfg={},
    ),
    'GARPNHead': dict(_GUIDED, num_classes=OMIT, stacked_convs=OMIT),
    'GARetinaHead': _GUIDED,
    'LDHead': dict(
        **HEADS['GFLHead'],
        loss_ld=dict(type='mmdet.KnowledgeDistillationKLDivLoss', loss_weight=0.25, T=10),
    ),
    'NASFCOSHead': dict(HEADS['FCOSHead'], norm_cfg=dict(type='GN', num_groups=4), init_cfg=None),
    'RPNHead': dict(
        _RETINA, num_classes=1, stacked_convs=OMIT, reg_decoded_bbox=True, loss_bbox=GIOU
    ),
    'RTMDetHead': _RTMDET,
    'RTMDetInsHead': _RTMDET,
    'RTMDetInsSepBNHead': dict(_RTMDET, norm_cfg=dict(type='BN')),
    'RTMDetSepBNHead': dict(_RTMDET, exp_on_reg=True, norm_cfg=dict(type='BN')),
    'RepPointsHead': dict(
        point_feat_channels=32,
        num_points=9,
        gradient_mul=0.1,
        point_strides=STRIDES,
        point_base_scale=4,
        loss_bbox_init=dict(type='mmdet.SmoothL1Loss', beta=0.11),
        loss_bbox_refine=GIOU,
        train_cfg=dict(
            init=dict(assigner=dict(type='mmdet.PointAssigner', scale=4, pos_num=1), **_POINTS),
            refine=dict(assigner=dict(MAX_IOU['assigner'], neg_iou_thr=0.4), **_POINTS),
        ),
    ),
    'RetinaSepBNHead': dict(
        _RETINA, num_ins=3, norm_cfg=dict(type='BN'), reg_decoded_bbox=True, loss_bbox=GIOU
    ),
    'SABLRetinaHead': dict(
        **_TWO_GENERATORS,
        bbox_coder=dict(type='mmdet.BucketingBBoxCoder', num_buckets=14, scale_factor=3.0),
        loss_bbox_cls=dict(type='mmdet.CrossEntropyLoss', use_sigmoid=True, loss_weight=1.5),
        loss_bbox_reg=dict(_SMOOTH, loss_weight=1.5),
        train_cfg=dict(assigner=_APPROX, **_POINTS),
    ),
    'TOODHead': dict(
        anchor_type='anchor_free',
        anchor_generator=_WIDE_ANCHORS,
        bbox_coder=CODER,
        loss_bbox=GIOU,
        train_cfg=dict(
            initial_epoch=1,
            initial_assigner=dict(type='mmdet.ATSSAssigner', topk=9),
            assigner=dict(type='mmdet.TaskAlignedAssigner', topk=13),
            alpha=1,
            beta=6,
            **_POINTS,
        ),
    ),
    'VFNetHead': dict(
        strides=STRIDES,
        regress_ranges=((-1, 32), (32, 64), (64, 1e8)),
        anchor_generator=dict(_WIDE_ANCHORS, center_offset=0.0),
        use_vfl=True,
        loss_bbox=dict(GIOU, loss_weight=1.5),
        loss_bbox_refine=GIOU,
        train_cfg=ATSS,
    ),
    'YOLOFHead': dict(
        stacked_convs=OMIT,
        num_cls_convs=1,
        num_reg_convs=1,
        reg_decoded_bbox=True,
        anchor_generator=dict(
            type='mmdet.AnchorGenerator', ratios=[1.0], scales=[2, 4], strides=[STRIDES[1]]
        ),
        bbox_coder=dict(CODER, add_ctr_clamp=True, ctr_clamp=32),
        loss_bbox=GIOU,
        train_cfg=dict(
            assigner=dict(type='mmdet.UniformAssigner', pos_ignore_thr=0.15, neg_ignore_thr=0.7),
            **_POINTS,
        ),
    ),
    'YOLOXHead': dict(
        strides=STRIDES,
        loss_bbox=dict(type='mmdet.IoULoss', mode='square', reduction='sum', eps=1e-16),
        train_cfg=dict(assigner=dict(type='mmdet.SimOTAAssigner', center_radius=2.5)),
    ),
}


def build_covered(name, loss_cls, **kwargs):
    """A small head of the given name, listwise unless set otherwise."""
    return build_head(name, loss_cls, heads={**HEADS, **MORE_HEADS}, **kwargs)


def covered_inputs(name, boxes=True):
    """Features, truths and image information as the head requires."""
    features, truths, metas = make_inputs(boxes)
    if name == 'YOLOFHead':
        features = features[1:2]
    if 'Ins' in name:
        for truth in truths:
            masks = np.zeros((len(truth), 128, 128), dtype=np.uint8)
            for mask, box in zip(masks, truth.bboxes.int().tolist()):
                mask[box[1] : box[3], box[0] : box[2]] = 1
            truth.masks = BitmapMasks(masks, 128, 128)
    if 'RPN' in name:
        for truth in truths:
            truth.labels = torch.zeros_like(truth.labels)
    return features, truths, metas


def covered_losses(name, head, boxes=True, epoch=0, leaves=False, labels=None, change=None):
    """Outputs and losses of a head, teachers' answers made up.

    With ``leaves`` the outputs are the leaves of the graph of the losses. ``labels`` are the
    ``exhaustive_labels`` of each image, and ``change`` gives other outputs for these.
    """
    # TOOD asks for the epoch and changes its assigner by it.
    MessageHub.get_current_instance().update_info('epoch', epoch)
    features, truths, metas = covered_inputs(name, boxes)
    if labels is not None:
        metas = [dict(meta, exhaustive_labels=own) for meta, own in zip(metas, labels)]
    outs = head(features)
    if change is not None:
        outs = change(outs)
    if leaves:
        outs = [
            levels.detach()  # features of masks, of one level
            if torch.is_tensor(levels)
            else [level.detach().requires_grad_() for level in levels]
            for levels in outs
        ]
    args = [*outs, truths, metas]
    if name == 'LDHead':
        args.append([box.detach().roll(1, 1) for box in outs[1]])
    return outs, head.loss_by_feat(*args)
