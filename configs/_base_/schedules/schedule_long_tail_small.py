# 200 iterations, two passes: some seconds on one CPU core. The learning rate
# is tuned by configs/long_tail/cifar10_losses_ir100.yaml.
_base_ = '../long_tail_runtime.py'

max_iters = 200
# Validation is done after the training, by tools/benchmarks/run_seeds.py.
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=max_iters, val_interval=max_iters + 1)
optim_wrapper = dict(
    optimizer=dict(
        type='mmrank.SUM', lr=0.1, momentum=0.9, s=0.0, weight_decay=5e-4))
param_scheduler = [
    dict(
        type='CosineAnnealingLR', T_max=max_iters, by_epoch=False, begin=0,
        end=max_iters)
]
default_hooks = dict(
    checkpoint=dict(by_epoch=False, interval=max_iters, save_best=None))
custom_hooks = [
    dict(type='mmrank.ClassCountsHook'),
    dict(
        type='mmrank.DeferredReweightingHook', begin=3 * max_iters // 4,
        by_epoch=False),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
log_processor = dict(by_epoch=False)
auto_scale_lr = dict(base_batch_size=128)
