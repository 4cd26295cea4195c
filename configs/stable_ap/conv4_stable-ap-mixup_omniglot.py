# Stable AP with deep feature mixup before the last two of four blocks, as the
# paper has it before the last two stages of ResNet-50: the loss sees 448 rows
# of 112 images. All else as in conv4_stable-ap_omniglot.py.
_base_ = './conv4_stable-ap_omniglot.py'

model = dict(
    image_encoder=[
        dict(
            type='mmrank.DeepFeatureMixup',
            u=0.9,
            stages=('blocks.2', 'blocks.3'),
            backbone=dict(type='mmrank.SmallConvNet', channels=32)),
        dict(type='mmpretrain.GlobalAveragePooling'),
        dict(
            type='mmpretrain.LinearNeck',
            in_channels=32,
            out_channels=64,
            norm_cfg=None,
            act_cfg=None),
    ])
