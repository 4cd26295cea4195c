# A RetinaNet small enough to train from scratch on two CPU cores: ResNet-18,
# a 64-channel FPN, one convolution per branch, square anchors only.
# `loss_cls` is stock focal loss; a ranking loss overrides nothing but the head's
# type and `loss_cls`.
_base_ = './resnet18_fpn_small.py'

model = dict(
    type='RetinaNet',
    bbox_head=dict(
        type='RetinaHead',
        num_classes=6,
        in_channels=64,
        feat_channels=64,
        stacked_convs=1,
        # Anchor sides of 16 to 161 pixels in steps of a third of an octave.
        anchor_generator=dict(
            type='AnchorGenerator',
            octave_base_scale=2,
            scales_per_octave=3,
            ratios=[1.0],
            strides=[8, 16, 32, 64]),
        bbox_coder=dict(
            type='DeltaXYWHBBoxCoder',
            target_means=[.0, .0, .0, .0],
            target_stds=[1.0, 1.0, 1.0, 1.0]),
        reg_decoded_bbox=True,
        loss_cls=dict(
            type='FocalLoss',
            use_sigmoid=True,
            gamma=2.0,
            alpha=0.25,
            loss_weight=1.0),
        loss_bbox=dict(type='GIoULoss', loss_weight=2.0)),
    train_cfg=dict(
        assigner=dict(
            type='MaxIoUAssigner',
            pos_iou_thr=0.5,
            neg_iou_thr=0.4,
            min_pos_iou=0,
            ignore_iof_thr=-1),
        sampler=dict(type='PseudoSampler'),
        allowed_border=-1,
        pos_weight=-1,
        debug=False),
    # No score threshold: average precision ranks all detections, and a
    # ranking loss fixes the order of scores, not their level.
    test_cfg=dict(
        nms_pre=1000,
        min_bbox_size=0,
        score_thr=0.0,
        nms=dict(type='nms', iou_threshold=0.5),
        max_per_img=100))
