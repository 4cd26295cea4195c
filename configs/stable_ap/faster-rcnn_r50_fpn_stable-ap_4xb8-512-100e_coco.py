# Faster R-CNN, RPN and R-CNN on stable AP, with the data and schedule of the
# paper's section 7.2. Published: 41.2 mAP on COCO test-dev, 39.1 with
# cross-entropy. The paper gives no details of its two-stage detector; the rest
# is mmdet's. We have not trained it.
_base_ = [
    '../_base_/coco_512/faster-rcnn_r50_fpn_giou.py',
    '../_base_/datasets/coco_512_ssd_augmentation.py',
    '../_base_/schedules/schedule_512_100e.py',
    '../_base_/coco_512/runtime.py',
]

stable_ap = dict(
    type='mmrank.StableAPLoss',
    quality=0,
    momentum=0.01,
    a=0.1,
    t=2.0,
    score_penalty=0.001)
model = dict(
    rpn_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.RPNHead',
        loss_cls=dict(_delete_=True, mean_mode='exact', **stable_ap),
        # 2 * GIoU of a positive, as in the paper: without sampling the box
        # loss of an RPN is an average over the positives.
        loss_bbox=dict(loss_weight=2.0)),
    roi_head=dict(
        bbox_head=dict(
            type='mmrank.ListwiseBBoxHead',
            head_type='mmdet.Shared2FCBBoxHead',
            box_average='positives',
            loss_bbox=dict(loss_weight=2.0),
            # The variance reduction of mean_mode='exact' needs the scores of
            # the same boxes under the previous weights, but these make other
            # proposals.
            loss_cls=dict(_delete_=True, **stable_ap))),
    train_cfg=dict(
        rpn=dict(sampler=dict(_delete_=True, type='PseudoSampler')),
        rcnn=dict(sampler=dict(num=1000000, pos_fraction=1.0))))

# mean_mode='exact' scores each batch again under the previous weights.
custom_hooks = [
    dict(type='mmrank.PreviousWeightsHook'),
    *_base_.custom_hooks,
]
