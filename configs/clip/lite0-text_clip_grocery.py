# CLIP on grocery photographs and their captions, the image network frozen (locked
# image tuning). The other losses of grocery_losses.yaml inherit from this file.
_base_ = [
    '../_base_/fine_tuning_runtime.py',
    '../_base_/datasets/grocery_captions.py',
]

model = dict(
    type='mmrank.ImageTextDualEncoder',
    # The stored features are the output of this pooling.
    image_encoder=dict(type='mmpretrain.GlobalAveragePooling'),
    image_channels=1280,
    text_encoder=dict(
        type='mmrank.TextTransformer', channels=64, num_layers=1, num_heads=4,
        max_length=66),
    embed_channels=64,
    zero_shot=dict(classes=_base_.classes, templates=('{}', )),
    head=dict(
        type='mmrank.ImageTextContrastHead',
        loss=dict(type='mmrank.CLIPLoss', tau=0.1)))

max_iters = 300
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=max_iters, val_interval=max_iters + 1)
# CLIP spares its temperature the weight decay.
optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.02),
    paramwise_cfg=dict(custom_keys=dict(log_tau=dict(decay_mult=0.0))))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=40),
    dict(
        type='CosineAnnealingLR', by_epoch=False, begin=40, end=max_iters,
        eta_min=1e-5),
]
auto_scale_lr = dict(base_batch_size=128)
default_hooks = dict(
    logger=dict(interval=41), checkpoint=dict(interval=max_iters))
custom_hooks = [
    dict(type='mmrank.SampleIndexHook'),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
