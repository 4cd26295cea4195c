# RetinaNet on DR loss, all else as in the stable AP twin. We have not trained
# it.
_base_ = '../stable_ap/retinanet_r50_fpn_atss_stable-ap_4xb8-512-100e_coco.py'

model = dict(
    bbox_head=dict(
        loss_cls=dict(_delete_=True, type='mmrank.DRLoss')))
custom_hooks = [
    dict(type='mmrank.RankingMonitorHook', interval=50),
    dict(type='mmrank.RNGStateHook'),
]
