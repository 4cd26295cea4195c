# CLIP with a learned temperature. The other losses of caption_losses.yaml inherit
# from this file.
_base_ = [
    'mmpretrain::_base_/default_runtime.py',
    '../_base_/models/conv3-text_clip_dual_encoder.py',
    '../_base_/datasets/cifar10_captions_16.py',
    '../_base_/schedules/schedule_captions.py',
]

model = dict(head=dict(loss=dict(type='mmrank.CLIPLoss', tau=0.2)))

default_hooks = dict(
    logger=dict(interval=64),
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
