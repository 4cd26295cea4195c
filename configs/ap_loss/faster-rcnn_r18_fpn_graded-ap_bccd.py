# Graded AP-Loss for the RPN and the box head of a stock Faster R-CNN; all else
# as in the cross-entropy config. Nothing is sampled away.
_base_ = '../stable_ap/faster-rcnn_r18_fpn_ce_bccd.py'

loss_cls = dict(_delete_=True, type='mmrank.GradedAPLoss', loss_weight=1.0)
model = dict(
    rpn_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.RPNHead',
        loss_cls=loss_cls,
        # Without sampling an average over the positives.
        loss_bbox=dict(loss_weight=2.0)),
    roi_head=dict(
        bbox_head=dict(
            type='mmrank.ListwiseBBoxHead',
            head_type='mmdet.Shared2FCBBoxHead',
            loss_cls=loss_cls,
            loss_bbox=dict(loss_weight=2.0))),
    train_cfg=dict(
        rpn=dict(sampler=dict(_delete_=True, type='PseudoSampler')),
        rcnn=dict(sampler=dict(num=1000000, pos_fraction=1.0))))
custom_hooks = [
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
