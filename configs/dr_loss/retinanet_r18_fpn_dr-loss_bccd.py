# Blood cells on DR loss; all else as in the focal twin.
_base_ = '../stable_ap/retinanet_r18_fpn_focal_bccd.py'

model = dict(
    bbox_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.RetinaHead',
        # With all classes in one list the rarest one was never learnt.
        loss_cls=dict(
            _delete_=True, type='mmrank.DRLoss', mode='per_class')))
custom_hooks = [
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
