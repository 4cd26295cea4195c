# The baseline of retinanet_r18_fpn_stable-ap_demo.py: the same detector,
# data, schedule and seed with stock focal loss.
_base_ = [
    'mmdet::_base_/default_runtime.py',
    '../_base_/models/retinanet_r18_fpn_small.py',
    '../_base_/datasets/shapes_coco.py',
]

# About two minutes on two CPU cores: a short warm-up, then a cosine.
max_epochs = 10
train_cfg = dict(
    type='EpochBasedTrainLoop', max_epochs=max_epochs, val_interval=max_epochs)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05),
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
# Deterministic algorithms are for the CPU: on CUDA, cumsum has none.
randomness = dict(seed=0, deterministic=False)

default_hooks = dict(
    logger=dict(interval=10),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook', interval=1, max_keep_ckpts=1))
custom_hooks = [dict(type='mmrank.RNGStateHook')]
log_processor = dict(window_size=10)
