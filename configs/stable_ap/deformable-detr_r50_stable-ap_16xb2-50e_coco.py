# mmdet's Deformable DETR on stable AP: a stock config extended in five lines.
_base_ = 'mmdet::deformable_detr/deformable-detr_r50_16xb2-50e_coco.py'

model = dict(
    bbox_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.DeformableDETRHead',
        loss_cls=dict(_delete_=True, type='mmrank.StableAPLoss')))
custom_hooks = [dict(type='mmrank.RankingMonitorHook', interval=50)]
