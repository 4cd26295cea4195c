# What the full-size detectors share beside model, data and schedule.
_base_ = 'mmdet::_base_/default_runtime.py'

custom_hooks = [
    dict(type='mmrank.RankingMonitorHook', interval=50),
    dict(type='mmrank.RNGStateHook'),
]
default_hooks = dict(
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook', interval=1, max_keep_ckpts=3))
