# mmdet's SSD512 on stable AP: one sigmoid a class over all anchors, in place
# of a softmax over mined ones. The stable AP paper's row of SSD (513 x 513, on
# its own loss): 28.8 mAP on COCO test-dev. We have not trained it.
_base_ = 'mmdet::ssd/ssd512_coco.py'

model = dict(
    bbox_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.SSDHead',
        loss_cls=dict(type='mmrank.StableAPLoss')))
custom_hooks = [dict(type='mmrank.RankingMonitorHook', interval=50)]
