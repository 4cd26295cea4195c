# What the full-size self-supervised configs share beside model, data, schedule.
# tools/test.py tells what a checkpoint's features are good for: k-NN, and a
# linear classifier at its optimum without augmentation.
_base_ = 'mmpretrain::_base_/default_runtime.py'

test_cfg = dict()
test_evaluator = [
    dict(type='mmrank.KNNMetric', k=200, tau=0.07),
    dict(type='mmrank.LinearProbeMetric'),
]
default_hooks = dict(
    logger=dict(interval=50),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook', interval=10, max_keep_ckpts=2))
custom_hooks = [
    dict(type='mmrank.SampleIndexHook'),
    dict(type='mmrank.RankingMonitorHook', interval=50),
    dict(type='mmrank.RNGStateHook'),
]
randomness = dict(seed=0)
