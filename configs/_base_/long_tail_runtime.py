# What the long-tail configs share beside data, model, loss and schedule.
_base_ = 'mmpretrain::_base_/default_runtime.py'

val_cfg = dict()
test_cfg = dict()
val_evaluator = dict(type='mmrank.AveragePrecisionMetric')
test_evaluator = dict(type='mmrank.AveragePrecisionMetric')
default_hooks = dict(
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook',
        interval=1,
        max_keep_ckpts=1,
        save_best='auto'))
log_processor = dict(by_epoch=True)
randomness = dict(seed=0)
