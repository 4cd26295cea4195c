# Faster R-CNN, RPN and R-CNN on aLRP loss; all else as in the cross-entropy
# twin. Published in the stable AP paper: 41.0 mAP on COCO test-dev. We have
# not trained it.
_base_ = '../stable_ap/faster-rcnn_r50_fpn_ce_4xb8-512-100e_coco.py'

model = dict(
    rpn_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.RPNHead',
        loss_cls=dict(
            _delete_=True,
            type='mmrank.ALRPLoss',
            # The weight of the RPN in the authors' code.
            loss_weight=0.2,
            # Iterations of an epoch of COCO at batch 32.
            balance_period=3665),
        # (1 - GIoU)/2: the localisation error of the paper.
        loss_bbox=dict(loss_weight=0.5)),
    roi_head=dict(
        bbox_head=dict(
            type='mmrank.ListwiseBBoxHead',
            head_type='mmdet.Shared2FCBBoxHead',
            loss_cls=dict(
                _delete_=True, type='mmrank.ALRPLoss', balance_period=3665),
            loss_bbox=dict(loss_weight=0.5))),
    train_cfg=dict(
        rpn=dict(sampler=dict(_delete_=True, type='PseudoSampler')),
        rcnn=dict(sampler=dict(num=1000000, pos_fraction=1.0))))
custom_hooks = [
    dict(type='mmrank.RankingMonitorHook', interval=50),
    dict(type='mmrank.RNGStateHook'),
]
