# RetinaNet on LVIS v1 with stable AP, one ranking per class: a class counts
# the same however rare it is, as in the metric. We have not trained it.
_base_ = './retinanet_r50_fpn_atss_focal_1x_lvis-v1.py'

model = dict(
    bbox_head=dict(
        loss_cls=dict(
            _delete_=True, type='mmrank.StableAPLoss', mode='per_class'
        )
    )
)
custom_hooks = [dict(type='mmrank.RankingMonitorHook', interval=50)]
