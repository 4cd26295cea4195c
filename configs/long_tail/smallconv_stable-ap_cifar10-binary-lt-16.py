_base_ = [
    '../_base_/datasets/cifar10_binary_lt_16.py',
    '../_base_/long_tail_runtime.py',
    '../_base_/long_tail_losses/stable_ap.py',
]

# cifar10_binary_lt_16.py for trainings of two passes: nothing is overfitted
# then, and augmentation would take as long as a small network.
train_dataloader = dict(
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(pipeline=[dict(type='PackInputs')]))

# Three convolution blocks for 16 x 16 images, one sigmoid score.
model = dict(
    type='mmpretrain.ImageClassifier',
    backbone=dict(
        type='mmrank.SmallConvNet', in_channels=3, channels=16, num_blocks=3),
    neck=dict(type='mmpretrain.GlobalAveragePooling'),
    head=dict(
        type='mmrank.OneVsRestHead',
        num_classes=1,
        in_channels=16,
        # From random weights raw scores learn faster than sigmoids; the order,
        # and so the metric, is the same.
        loss=dict(
            _base_.loss,
            activation='none',
            tau=1.0,
            mean_mode='plain',
            score_range=(-5.0, 5.0),
            score_penalty=0.001)))

# 200 iterations, two passes: some seconds on one CPU core. The learning rate
# is tuned by tools/research/papers/stable_ap/table6.yaml.
max_iters = 200
# Validation is done after the training, by tools/research/run_seeds.py.
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
