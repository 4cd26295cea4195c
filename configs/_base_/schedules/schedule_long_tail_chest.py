# See schedule_long_tail_cifar.py; from ImageNet weights.
_base_ = './schedule_long_tail_cifar.py'

max_epochs = 20
train_cfg = dict(max_epochs=max_epochs)
optim_wrapper = dict(optimizer=dict(lr=0.01, weight_decay=1e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, end=500, by_epoch=False),
    dict(type='MultiStepLR', milestones=[14, 18], gamma=0.1)
]
custom_hooks = _base_.custom_hooks
custom_hooks[2].begin = 14
auto_scale_lr = dict(base_batch_size=64)
