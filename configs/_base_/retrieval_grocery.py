# Fine-tuning of the last stages of EfficientNet-Lite0 on grocery products, 90
# iterations of 56 images; the embedding is new and learns ten times as fast. The
# loss is set by the inheriting config.
_base_ = [
    './fine_tuning_runtime.py',
    './models/efficientnet-lite0_cached_retriever.py',
    './datasets/grocery_cached_pk.py',
]

max_iters = 90
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=max_iters, val_interval=max_iters + 1)
optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=1e-4, weight_decay=4e-4),
    paramwise_cfg=dict(custom_keys={'image_encoder.2': dict(lr_mult=10.0)}))
param_scheduler = [
    dict(
        type='CosineAnnealingLR', T_max=max_iters, by_epoch=False, begin=0,
        end=max_iters)
]
auto_scale_lr = dict(base_batch_size=56)
default_hooks = dict(
    logger=dict(interval=30), checkpoint=dict(interval=max_iters))
