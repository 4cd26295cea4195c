# Graded AP-Loss for a stock ATSS head; all else as in the focal config.
_base_ = './atss_lite0_fpn_focal_demo.py'

model = dict(
    bbox_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.ATSSHead',
        loss_cls=dict(_delete_=True, type='mmrank.GradedAPLoss')))
custom_hooks = [
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
