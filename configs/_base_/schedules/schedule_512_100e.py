# Stable AP (2025), section 7.2: batch 32, 100 epochs, learning rate 0.008
# divided by 10 at 75 and 95; SUM with beta 0.9 and s 0 is heavy-ball SGD.
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=100, val_interval=5)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(
        type='mmrank.SUM', lr=0.008, momentum=0.9, s=0.0, weight_decay=1e-4))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.001, by_epoch=False, begin=0,
        end=500),
    dict(
        type='MultiStepLR',
        begin=0,
        end=100,
        by_epoch=True,
        milestones=[75, 95],
        gamma=0.1)
]
auto_scale_lr = dict(base_batch_size=32)
