# SimCLR on CIFAR-10-LT at 16 x 16, for a CPU.
_base_ = [
    '../_base_/datasets/cifar10_lt_batch_views_16.py',
    '../_base_/models/conv3_two-view.py',
    '../_base_/schedules/schedule_small_views.py',
    'mmpretrain::_base_/default_runtime.py',
]

model = dict(loss=dict(type='mmrank.InfoNCELoss', tau=0.1))

default_hooks = dict(
    logger=dict(interval=20),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook', interval=3, max_keep_ckpts=1))
custom_hooks = [
    dict(type='mmrank.SampleIndexHook'),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
randomness = dict(seed=0)
