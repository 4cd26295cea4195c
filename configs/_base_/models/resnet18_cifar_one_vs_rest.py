# ResNet-18 for 32 x 32 images, one sigmoid score per class, on stable AP.
_base_ = '../long_tail_losses/stable_ap.py'

model = dict(
    type='mmpretrain.ImageClassifier',
    backbone=dict(
        type='mmpretrain.ResNet_CIFAR',
        depth=18,
        num_stages=4,
        out_indices=(3, ),
        style='pytorch'),
    neck=dict(type='mmpretrain.GlobalAveragePooling'),
    head=dict(
        type='mmrank.OneVsRestHead',
        num_classes=1,
        in_channels=512,
        loss={{_base_.loss}}))
