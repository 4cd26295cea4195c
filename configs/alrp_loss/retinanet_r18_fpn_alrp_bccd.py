# Blood cells on aLRP loss; all else as in the focal twin.
_base_ = '../stable_ap/retinanet_r18_fpn_focal_bccd.py'

model = dict(
    bbox_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.RetinaHead',
        loss_cls=dict(
            _delete_=True,
            type='mmrank.ALRPLoss',
            # Iterations of an epoch of 205 images.
            balance_period=51),
        # (1 - GIoU)/2: the localisation error of the paper.
        loss_bbox=dict(loss_weight=0.5)))
custom_hooks = [
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
