# mmdet's Mask R-CNN, RPN and R-CNN on Rank & Sort: the positives are sorted by
# the IoU of their boxes, as in the authors' code, which computes this loss
# before there are masks. The mask loss is mmdet's; the authors' is a dice
# loss, balanced as the boxes are. We have not trained it.
_base_ = 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'

model = dict(
    rpn_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.RPNHead',
        balance_boxes=True,
        reg_decoded_bbox=True,
        # The weight of the RPN in the authors' code.
        loss_cls=dict(
            _delete_=True, type='mmrank.RankSortLoss', loss_weight=0.2),
        loss_bbox=dict(_delete_=True, type='GIoULoss')),
    roi_head=dict(
        bbox_head=dict(
            type='mmrank.ListwiseBBoxHead',
            head_type='mmdet.Shared2FCBBoxHead',
            balance_boxes=True,
            reg_decoded_bbox=True,
            loss_cls=dict(_delete_=True, type='mmrank.RankSortLoss'),
            loss_bbox=dict(_delete_=True, type='GIoULoss'))),
    train_cfg=dict(
        rpn=dict(sampler=dict(_delete_=True, type='PseudoSampler')),
        rcnn=dict(sampler=dict(num=1000000, pos_fraction=1.0))))
optim_wrapper = dict(optimizer=dict(lr=0.012))
custom_hooks = [dict(type='mmrank.RankingMonitorHook', interval=50)]
