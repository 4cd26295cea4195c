# What the full-size retrieval configs share beside model, data and schedule.
_base_ = 'mmpretrain::_base_/default_runtime.py'

val_cfg = dict()
test_cfg = dict()
default_hooks = dict(
    logger=dict(interval=100, log_metric_by_epoch=False),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook',
        by_epoch=False,
        interval=5000,
        max_keep_ckpts=3))
custom_hooks = [
    dict(type='mmrank.ClassCountsHook'),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
log_processor = dict(by_epoch=False)
randomness = dict(seed=0)
