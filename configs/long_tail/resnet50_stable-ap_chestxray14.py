_base_ = [
    '../_base_/datasets/chest_xray14_224.py',
    '../_base_/long_tail_runtime.py',
    '../_base_/long_tail_losses/stable_ap.py',
]

# ResNet-50 from ImageNet weights, one sigmoid score per class.
model = dict(
    type='mmpretrain.ImageClassifier',
    backbone=dict(
        type='mmpretrain.ResNet',
        depth=50,
        num_stages=4,
        out_indices=(3, ),
        style='pytorch',
        init_cfg=dict(
            type='Pretrained', checkpoint='torchvision://resnet50')),
    neck=dict(type='mmpretrain.GlobalAveragePooling'),
    head=dict(
        type='mmrank.OneVsRestHead',
        num_classes=14,
        in_channels=2048,
        loss=_base_.loss))

# See schedule_long_tail_cifar.py; from ImageNet weights.
max_epochs = 20
train_cfg = dict(
    type='EpochBasedTrainLoop', max_epochs=max_epochs, val_interval=1)
optim_wrapper = dict(
    optimizer=dict(
        type='mmrank.SUM', lr=0.01, momentum=0.9, s=0.0, weight_decay=1e-4))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.01, end=500, by_epoch=False),
    dict(type='MultiStepLR', milestones=[14, 18], gamma=0.1)
]
custom_hooks = [
    dict(type='mmrank.LabelCheckHook'),
    dict(type='mmrank.ClassCountsHook'),
    # LDAM's weights start with the first step of the learning rate.
    dict(type='mmrank.DeferredReweightingHook', begin=14),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
    # mean_mode='exact' scores each batch again under the previous weights.
    dict(type='mmrank.PreviousWeightsHook'),
]
auto_scale_lr = dict(base_batch_size=64)
