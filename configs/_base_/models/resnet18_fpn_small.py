# What the small detectors share: ResNet-18 at half width and a 64-channel FPN,
# made to train from scratch on two CPU cores.
model = dict(
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32),
    backbone=dict(
        type='ResNet',
        depth=18,
        base_channels=32,
        num_stages=4,
        out_indices=(0, 1, 2, 3),
        # From scratch: nothing is frozen and batch norm must learn its
        # statistics.
        frozen_stages=-1,
        norm_cfg=dict(type='BN', requires_grad=True),
        norm_eval=False,
        style='pytorch',
        init_cfg=None),
    neck=dict(
        type='FPN',
        in_channels=[32, 64, 128, 256],
        out_channels=64,
        start_level=1,
        add_extra_convs='on_output',
        num_outs=4))
