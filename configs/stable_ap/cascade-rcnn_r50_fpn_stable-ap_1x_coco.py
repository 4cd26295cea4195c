# mmdet's Cascade R-CNN, RPN and the three stages on stable AP; see
# mask-rcnn_r50_fpn_stable-ap_1x_coco.py for the samplers. We have not trained
# it.
_base_ = 'mmdet::cascade_rcnn/cascade-rcnn_r50_fpn_1x_coco.py'

# A list is not merged with that of the base, so the stages are made from it.
stable_ap = dict(type='mmrank.StableAPLoss')
# The box loss is an average over the proposals: 2,000 instead of 512.
box_weight = 4.0
model = dict(
    rpn_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.RPNHead',
        loss_cls=dict(_delete_=True, type='mmrank.StableAPLoss')),
    roi_head=dict(
        bbox_head=[
            dict(
                stage,
                loss_cls=stable_ap,
                loss_bbox=dict(stage.loss_bbox, loss_weight=box_weight))
            for stage in _base_.model.roi_head.bbox_head
        ]),
    train_cfg=dict(
        rpn=dict(sampler=dict(_delete_=True, type='PseudoSampler')),
        rcnn=[
            dict(
                stage,
                sampler=dict(stage.sampler, num=1000000, pos_fraction=1.0))
            for stage in _base_.model.train_cfg.rcnn
        ]))
custom_hooks = [dict(type='mmrank.RankingMonitorHook', interval=50)]
