# Three convolution blocks for 16 x 16 images, one sigmoid score.
model = dict(
    type='mmpretrain.ImageClassifier',
    backbone=dict(
        type='mmrank.SmallConvNet', in_channels=3, channels=16, num_blocks=3),
    neck=dict(type='mmpretrain.GlobalAveragePooling'),
    head=dict(type='mmrank.OneVsRestHead', num_classes=1, in_channels=16))
