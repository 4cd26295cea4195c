# LARS, 400 epochs, 10 of them warm-up, as in the iSogCLR paper: 0.8 at a batch
# of 128 for CIFAR.
max_epochs = 400
# Never validated on the way: a validation is a linear evaluation.
train_cfg = dict(by_epoch=True, max_epochs=max_epochs, val_begin=100000)

optim_wrapper = dict(
    optimizer=dict(type='LARS', lr=0.8, momentum=0.9, weight_decay=1e-4),
    paramwise_cfg=dict(
        custom_keys={
            'bn': dict(decay_mult=0, lars_exclude=True),
            'bias': dict(decay_mult=0, lars_exclude=True),
            'downsample.1': dict(decay_mult=0, lars_exclude=True),
        }))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=1e-4, by_epoch=True, begin=0, end=10,
        convert_to_iter_based=True),
    dict(
        type='CosineAnnealingLR', T_max=max_epochs - 10, by_epoch=True,
        begin=10, end=max_epochs, convert_to_iter_based=True),
]
