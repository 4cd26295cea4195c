# Overfit check on 128 images of 80 classes: mAP on the training images must
# climb. The baseline twin of retinanet_r18_fpn_stable-ap_coco128.py.
_base_ = [
    'mmdet::_base_/default_runtime.py',
    '../_base_/models/retinanet_r18_fpn_small.py',
    '../_base_/datasets/coco128.py',
]

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
