# Faster R-CNN, RPN and R-CNN on stable AP, with the data and schedule of the
# paper's section 7.2. Published: 41.2 mAP on COCO test-dev. The paper gives no
# details of its two-stage detector; the rest is mmdet's. We have not trained
# it.
_base_ = './faster-rcnn_r50_fpn_ce_4xb8-512-100e_coco.py'

model = dict(
    rpn_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.RPNHead',
        loss_cls=dict(
            _delete_=True,
            type='mmrank.StableAPLoss',
            mean_mode='exact',
            momentum=0.01,
            a=0.1,
            t=2.0,
            score_penalty=0.001),
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
            loss_cls=dict(
                _delete_=True,
                type='mmrank.StableAPLoss',
                momentum=0.01,
                a=0.1,
                t=2.0,
                score_penalty=0.001))),
    train_cfg=dict(
        rpn=dict(sampler=dict(_delete_=True, type='PseudoSampler')),
        rcnn=dict(sampler=dict(num=1000000, pos_fraction=1.0))))

# mean_mode='exact' scores each batch again under the previous weights.
custom_hooks = [
    dict(type='mmrank.PreviousWeightsHook'),
    dict(type='mmrank.RankingMonitorHook', interval=50),
    dict(type='mmrank.RNGStateHook'),
]
