# ResNet-50 from ImageNet weights, one sigmoid score per class, on stable AP.
_base_ = '../long_tail_losses/stable_ap.py'

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
        loss={{_base_.loss}}))
