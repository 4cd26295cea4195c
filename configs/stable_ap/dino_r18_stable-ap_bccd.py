# A small DINO on the stable AP loss; all else as in the focal config.
_base_ = './dino_r18_focal_bccd.py'

model = dict(
    bbox_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.DINOHead',
        loss_cls=dict(_delete_=True, type='mmrank.StableAPLoss', quality=0)))
custom_hooks = [
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
