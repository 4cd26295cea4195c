# mmdet's DINO on stable AP: a stock config extended in five lines.
_base_ = 'mmdet::dino/dino-4scale_r50_8xb2-12e_coco.py'

model = dict(
    bbox_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.DINOHead',
        loss_cls=dict(_delete_=True, type='mmrank.StableAPLoss')))
custom_hooks = [dict(type='mmrank.RankingMonitorHook', interval=50)]
