# Overfit check of stable AP on 128 images of 80 classes; all else as in the
# focal config.
_base_ = './retinanet_r18_fpn_focal_coco128.py'

model = dict(
    bbox_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.RetinaHead',
        loss_cls=dict(_delete_=True, type='mmrank.StableAPLoss', quality=0)))
custom_hooks = [dict(type='mmrank.RankingMonitorHook')]
