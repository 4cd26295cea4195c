# Three convolution blocks, 48-d features, and SimCLR's projector, for 16 x 16
# colour images.
model = dict(
    type='mmrank.TwoViewLearner',
    backbone=dict(
        type='mmrank.SmallConvNet', in_channels=3, channels=48, num_blocks=3),
    neck=dict(
        type='mmpretrain.NonLinearNeck',
        in_channels=48,
        hid_channels=128,
        out_channels=128,
        num_layers=2,
        with_last_bn=False,
        norm_cfg=dict(type='BN1d')),
    loss=dict(type='mmrank.InfoNCELoss'))
