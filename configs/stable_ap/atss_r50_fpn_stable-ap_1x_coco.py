# mmdet's ATSS on stable AP: a stock config extended in five lines.
_base_ = 'mmdet::atss/atss_r50_fpn_1x_coco.py'

model = dict(
    bbox_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.ATSSHead',
        loss_cls=dict(_delete_=True, type='mmrank.StableAPLoss')))
custom_hooks = [dict(type='mmrank.RankingMonitorHook', interval=50)]
