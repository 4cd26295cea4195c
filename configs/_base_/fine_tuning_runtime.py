# What trainings of seconds share: one checkpoint, of the weights alone, at the end.
# A config sets interval of logger and checkpoint, the latter to its max_iters.
_base_ = 'mmpretrain::_base_/default_runtime.py'

val_cfg = dict()
test_cfg = dict()
default_hooks = dict(
    # A validation is drawn at its iteration.
    logger=dict(log_metric_by_epoch=False),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook',
        by_epoch=False,
        save_optimizer=False,
        max_keep_ckpts=1))
custom_hooks = [
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
log_processor = dict(by_epoch=False, window_size=10)
randomness = dict(seed=0)
