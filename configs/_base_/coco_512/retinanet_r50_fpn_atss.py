# RetinaNet of the stable AP paper, section 7.2, on focal loss: one square
# anchor per location, ATSS assignment, frozen batch norm, boxes by GIoU.
_base_ = 'mmdet::_base_/models/retinanet_r50_fpn.py'

model = dict(
    backbone=dict(
        norm_cfg=dict(type='BN', requires_grad=False), norm_eval=True),
    neck=dict(add_extra_convs='on_output'),
    bbox_head=dict(
        anchor_generator=dict(
            _delete_=True,
            type='AnchorGenerator',
            ratios=[1.0],
            octave_base_scale=8,
            scales_per_octave=1,
            strides=[8, 16, 32, 64, 128]),
        bbox_coder=dict(target_stds=[0.1, 0.1, 0.2, 0.2]),
        reg_decoded_bbox=True,
        loss_bbox=dict(_delete_=True, type='GIoULoss', loss_weight=2.0)),
    train_cfg=dict(
        assigner=dict(
            _delete_=True, type='mmrank.AnchorATSSAssigner', topk=9)),
    test_cfg=dict(
        nms_pre=1000,
        score_thr=0.05,
        nms=dict(type='nms', iou_threshold=0.6),
        max_per_img=100))
