# mmdet's YOLOv3 on stable AP: class times objectness, as it is shown, ranked
# over all anchors and classes. We have not trained it.
_base_ = 'mmdet::yolo/yolov3_d53_8xb8-ms-608-273e_coco.py'

model = dict(
    bbox_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.YOLOV3Head',
        # The losses of YOLOv3 are sums over a batch, and its learning rate is
        # made for them; a ranking loss is near 1.
        balance_boxes=True,
        loss_cls=dict(
            _delete_=True, type='mmrank.StableAPLoss', loss_weight=64.0)))
custom_hooks = [dict(type='mmrank.RankingMonitorHook', interval=50)]
