# Overfit check on 128 images of 80 classes: mAP on the training images must
# climb. The baseline of retinanet_r18_fpn_stable-ap_coco128.py.
_base_ = [
    'mmdet::_base_/default_runtime.py',
    '../_base_/models/retinanet_r18_fpn_small.py',
]

# The first 128 images of COCO train2017, all 80 classes, for overfit checks:
# it is evaluated on what it trains on. Put or link the folder that holds
# train2017/ and annotations/ to data/coco128.
dataset_type = 'CocoDataset'
data_root = 'data/coco128/'
image_scale = (320, 320)

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='Resize', scale=image_scale, keep_ratio=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackDetInputs')
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=image_scale, keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape',
                   'scale_factor'))
]
train_dataloader = dict(
    batch_size=8,
    num_workers=1,
    persistent_workers=False,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        ann_file='annotations/instances_train2017.json',
        data_prefix=dict(img='train2017/'),
        filter_cfg=dict(filter_empty_gt=True),
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=8,
    num_workers=1,
    persistent_workers=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        ann_file='annotations/instances_train2017.json',
        data_prefix=dict(img='train2017/'),
        test_mode=True,
        pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(
    type='mmrank.CocoMetric',
    ann_file=data_root + 'annotations/instances_train2017.json',
    metric='bbox')
test_evaluator = val_evaluator

model = dict(
    bbox_head=dict(
        num_classes=80, anchor_generator=dict(octave_base_scale=3)))

max_epochs = 40
train_cfg = dict(
    type='EpochBasedTrainLoop', max_epochs=max_epochs, val_interval=10)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.0),
    clip_grad=dict(max_norm=10.0))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.05, by_epoch=False, begin=0, end=20),
    dict(
        type='CosineAnnealingLR',
        T_max=max_epochs,
        eta_min_ratio=0.02,
        by_epoch=True,
        begin=0,
        end=max_epochs,
        convert_to_iter_based=True)
]
randomness = dict(seed=0)
default_hooks = dict(
    logger=dict(interval=8),
    checkpoint=dict(interval=20, max_keep_ckpts=1))
