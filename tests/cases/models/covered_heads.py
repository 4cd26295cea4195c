"""One small instance of each further mmdet head, shared by tests.

The heads of ``small_heads.HEADS`` and these are what the README's table names. Where a config of
mmdet has a head, its settings are taken from there.
"""

import torch
from mmengine.logging import MessageHub
from small_heads import (
    ANCHORS,
    GIOU,
    HEADS,
    OMIT,
    STRIDES,
    box_masks,
    build_head,
    make_inputs,
    stock,
)

_POINTS = dict(allowed_border=-1, pos_weight=-1, debug=False)
_GUIDED = stock(
    'guided_anchoring/ga-retinanet_r50_fpn_1x_coco', reg_decoded_bbox=True, loss_bbox=GIOU
)
_RTMDET = dict(
    anchor_generator=dict(type='mmdet.MlvlPointGenerator', offset=0, strides=STRIDES),
    bbox_coder=dict(type='mmdet.DistancePointBBoxCoder'),
    loss_bbox=GIOU,
    with_objectness=False,
    train_cfg=dict(assigner=dict(type='mmdet.DynamicSoftLabelAssigner', topk=13), **_POINTS),
)

MORE_HEADS = {
    'BoxInstBboxHead': HEADS['FCOSHead'],
    'CondInstBboxHead': HEADS['FCOSHead'],
    'DDODHead': stock('ddod/ddod_r50_fpn_1x_coco'),
    'FoveaHead': stock('foveabox/fovea_r50_fpn_4xb4-1x_coco'),
    'GARPNHead': dict(_GUIDED, num_classes=OMIT, stacked_convs=OMIT),
    'GARetinaHead': _GUIDED,
    'LDHead': stock('ld/ld_r18-gflv1-r101_fpn_1x_coco'),
    'NASFCOSHead': dict(HEADS['FCOSHead'], norm_cfg=dict(type='GN', num_groups=4), init_cfg=None),
    'RPNHead': dict(HEADS['RetinaHead'], num_classes=1, stacked_convs=OMIT),
    'RTMDetHead': _RTMDET,
    'RTMDetInsHead': _RTMDET,
    'RTMDetInsSepBNHead': dict(_RTMDET, norm_cfg=dict(type='BN')),
    'RTMDetSepBNHead': dict(_RTMDET, exp_on_reg=True, norm_cfg=dict(type='BN')),
    'RepPointsHead': stock(
        'reppoints/reppoints-moment_r50_fpn_1x_coco', point_feat_channels=32, loss_bbox_refine=GIOU
    ),
    'RetinaSepBNHead': dict(HEADS['RetinaHead'], num_ins=3, norm_cfg=dict(type='BN')),
    'SABLRetinaHead': stock('sabl/sabl-retinanet_r50_fpn_1x_coco'),
    'TOODHead': stock('tood/tood_r50_fpn_1x_coco'),
    'VFNetHead': stock(
        'vfnet/vfnet_r50_fpn_1x_coco',
        regress_ranges=HEADS['FCOSHead']['regress_ranges'],
        anchor_generator=dict(ANCHORS, octave_base_scale=8, center_offset=0.0),
    ),
    'YOLOFHead': stock(
        'yolof/yolof_r50-c5_8xb8-1x_coco',
        stacked_convs=OMIT,
        num_cls_convs=1,
        num_reg_convs=1,
        anchor_generator=dict(
            type='mmdet.AnchorGenerator', ratios=[1.0], scales=[2, 4], strides=[STRIDES[1]]
        ),
    ),
    'YOLOXHead': stock('yolox/yolox_tiny_8xb8-300e_coco'),
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
            truth.masks = box_masks(truth.bboxes)
    if 'RPN' in name:
        for truth in truths:
            truth.labels = torch.zeros_like(truth.labels)
    return features, truths, metas


def covered_losses(name, head, boxes=True, epoch=0, leaves=False, labels=None, change=None):
    """Outputs and losses of a head, teachers' answers made up.

    With ``leaves`` the outputs are the leaves of the graph of the losses. ``labels`` are the
    ``exhaustive_labels`` of each image, and ``change`` gives other outputs for these.
    """
    # TOOD asks for the epoch and changes its assigner by it, after the fourth.
    MessageHub.get_current_instance().update_info('epoch', 4 * epoch)
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
