# ResNet-50 with VICReg's projector: three linear layers of 8192 units, batch
# norm and ReLU after the first two.
model = dict(
    type='mmrank.TwoViewLearner',
    backbone=dict(
        type='mmpretrain.ResNet',
        depth=50,
        norm_cfg=dict(type='SyncBN'),
        zero_init_residual=True),
    neck=dict(
        type='mmpretrain.NonLinearNeck',
        in_channels=2048,
        hid_channels=8192,
        out_channels=8192,
        num_layers=3,
        with_last_bn=False),
    loss=dict(type='mmrank.InfoNCELoss'))
