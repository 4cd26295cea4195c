# The cross-entropy twin of faster-rcnn_r50_fpn_stable-ap_4xb8-512-100e_coco.py:
# the data and schedule of stable AP's section 7.2 with mmdet's losses and
# samplers. Published: 39.1 mAP on COCO test-dev. We have not trained it.
_base_ = [
    'mmdet::_base_/models/faster-rcnn_r50_fpn.py',
    '../_base_/datasets/coco_512_ssd_augmentation.py',
    '../_base_/schedules/schedule_512_100e.py',
    'mmdet::_base_/default_runtime.py',
]

model = dict(
    backbone=dict(
        norm_cfg=dict(type='BN', requires_grad=False), norm_eval=True),
    rpn_head=dict(
        reg_decoded_bbox=True,
        # An average over the sampled boxes, objects or not; 10 is mmdet's
        # weight of GIoU.
        loss_bbox=dict(_delete_=True, type='GIoULoss', loss_weight=10.0)),
    roi_head=dict(
        bbox_head=dict(
            reg_decoded_bbox=True,
            loss_bbox=dict(_delete_=True, type='GIoULoss', loss_weight=10.0))),
    test_cfg=dict(rcnn=dict(nms=dict(type='nms', iou_threshold=0.6))))

custom_hooks = [dict(type='mmrank.RNGStateHook')]
default_hooks = dict(
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook', interval=1, max_keep_ckpts=3))
