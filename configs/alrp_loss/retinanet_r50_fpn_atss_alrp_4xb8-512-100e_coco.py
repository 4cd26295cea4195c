# RetinaNet on aLRP loss, all else as in the stable AP twin. We have not trained
# it.
_base_ = '../stable_ap/retinanet_r50_fpn_atss_stable-ap_4xb8-512-100e_coco.py'

model = dict(
    bbox_head=dict(
        loss_cls=dict(
            _delete_=True,
            type='mmrank.ALRPLoss',
            # Iterations of an epoch of COCO at batch 32.
            balance_period=3665),
        # (1 - GIoU)/2: the localisation error of the paper.
        loss_bbox=dict(loss_weight=0.5)))
custom_hooks = [
    dict(type='mmrank.RankingMonitorHook', interval=50),
    dict(type='mmrank.RNGStateHook'),
]
