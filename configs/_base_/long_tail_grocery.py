# Fine-tuning of the last stages of EfficientNet-Lite0 on 81 grocery products, one
# against the rest: 120 iterations of 96 images, four passes. The layer of the
# scores is new and learns ten times as fast. The loss is set by the inheriting
# config.
_base_ = [
    './fine_tuning_runtime.py',
    './models/efficientnet-lite0_cached_one_vs_rest.py',
    './datasets/grocery_one_vs_rest.py',
]

max_iters = 120
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=max_iters, val_interval=max_iters + 1)
optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=1e-4, weight_decay=0.01),
    paramwise_cfg=dict(custom_keys={'head': dict(lr_mult=10.0)}))
param_scheduler = [
    dict(
        type='CosineAnnealingLR', T_max=max_iters, by_epoch=False, begin=0,
        end=max_iters)
]
auto_scale_lr = dict(base_batch_size=96)
default_hooks = dict(
    logger=dict(interval=50), checkpoint=dict(interval=max_iters))
custom_hooks = [
    dict(type='mmrank.ClassCountsHook'),
    dict(
        type='mmrank.DeferredReweightingHook', begin=3 * max_iters // 4,
        by_epoch=False),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
