# CLIP with a learned temperature. Other losses are rows of
# tools/research/papers/isogclr/captions.yaml.
_base_ = [
    'mmpretrain::_base_/default_runtime.py',
    '../_base_/models/conv3-text_clip_dual_encoder.py',
    '../_base_/datasets/cifar10_captions_16.py',
]

# 640 iterations of 128 pairs: ten epochs.
max_iters = 640
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=max_iters, val_interval=max_iters)
val_cfg = dict()
test_cfg = dict()

# CLIP spares its temperature the weight decay, SigLIP also its bias.
optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=3e-3, weight_decay=0.02),
    paramwise_cfg=dict(
        custom_keys=dict(
            log_tau=dict(decay_mult=0.0),
            log_scale=dict(decay_mult=0.0),
            logit_bias=dict(decay_mult=0.0))))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(
        type='CosineAnnealingLR', by_epoch=False, begin=50, end=max_iters,
        eta_min=1e-5),
]
auto_scale_lr = dict(base_batch_size=128)

model = dict(head=dict(loss=dict(type='mmrank.CLIPLoss', tau=0.2)))

default_hooks = dict(
    logger=dict(interval=64, log_metric_by_epoch=False),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook',
        by_epoch=False,
        interval=320,
        max_keep_ckpts=1))
custom_hooks = [
    dict(type='mmrank.SampleIndexHook'),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
log_processor = dict(by_epoch=False, window_size=10)
randomness = dict(seed=0)
