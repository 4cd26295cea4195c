# Momentum 0.9 and s=0 are the stable AP paper's (section 7.3); it tunes the
# learning rate on validation data, and does not state epochs, batch size and
# weight decay.
_base_ = '../long_tail_runtime.py'

max_epochs = 100
train_cfg = dict(
    type='EpochBasedTrainLoop', max_epochs=max_epochs, val_interval=1)
optim_wrapper = dict(
    optimizer=dict(
        type='mmrank.SUM', lr=0.1, momentum=0.9, s=0.0, weight_decay=5e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, end=5),
    dict(type='MultiStepLR', milestones=[75, 90], gamma=0.1)
]
custom_hooks = [
    dict(type='mmrank.LabelCheckHook'),
    dict(type='mmrank.ClassCountsHook'),
    # LDAM's weights start with the first step of the learning rate.
    dict(type='mmrank.DeferredReweightingHook', begin=75),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
auto_scale_lr = dict(base_batch_size=128)
