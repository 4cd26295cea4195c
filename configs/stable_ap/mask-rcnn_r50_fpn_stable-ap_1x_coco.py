# mmdet's Mask R-CNN, RPN and R-CNN on stable AP. All anchors and all proposals
# are ranked: PseudoSampler keeps every anchor, and RandomSampler every
# proposal when it may take more than there are (and adds the ground truth,
# which PseudoSampler does not). We have not trained it.
_base_ = 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'

model = dict(
    rpn_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.RPNHead',
        loss_cls=dict(_delete_=True, type='mmrank.StableAPLoss')),
    roi_head=dict(
        bbox_head=dict(
            loss_cls=dict(_delete_=True, type='mmrank.StableAPLoss'),
            # An average over the proposals: 1,000 instead of 512.
            loss_bbox=dict(loss_weight=2.0))),
    train_cfg=dict(
        rpn=dict(sampler=dict(_delete_=True, type='PseudoSampler')),
        rcnn=dict(sampler=dict(num=1000000, pos_fraction=1.0))))
custom_hooks = [dict(type='mmrank.RankingMonitorHook', interval=50)]
