# What the full-size self-supervised configs share beside model, data, schedule.
# mmrank test tells what a checkpoint's features are good for: k-NN, and the linear
# evaluation of the iSogCLR paper.
_base_ = 'mmpretrain::_base_/default_runtime.py'

val_cfg = dict()
test_cfg = dict()
val_evaluator = dict(type='mmrank.KNNMetric', k=200, tau=0.07)
test_evaluator = val_evaluator
default_hooks = dict(
    logger=dict(interval=50),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook', interval=10, max_keep_ckpts=1))
custom_hooks = [
    dict(type='mmrank.SampleIndexHook'),
    dict(type='mmrank.RankingMonitorHook', interval=50),
    dict(type='mmrank.RNGStateHook'),
    dict(
        type='mmrank.LinearEvaluationHook',
        transforms=[
            dict(type='RandomResizedCrop', scale=224),
            dict(type='RandomFlip', prob=0.5),
        ]),
]
randomness = dict(seed=0)
