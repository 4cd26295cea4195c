# A DINO small enough to train from scratch on two CPU cores: ResNet-18 at half
# width, three levels of 64 channels, one encoder and three decoder layers.
# `loss_cls` is stock focal loss; a twin overrides nothing but the head's type
# and `loss_cls`.
_base_ = './resnet18_fpn_small.py'
width = 64
attention = dict(embed_dims=width, num_heads=4, num_levels=3, dropout=0.0)
feed_forward = dict(
    embed_dims=width, feedforward_channels=256, ffn_drop=0.0)

model = dict(
    type='DINO',
    num_queries=60,
    num_feature_levels=3,
    with_box_refine=True,
    as_two_stage=True,
    backbone=dict(out_indices=(1, 2, 3)),
    neck=dict(
        _delete_=True,
        type='ChannelMapper',
        in_channels=[64, 128, 256],
        kernel_size=1,
        out_channels=width,
        act_cfg=None,
        norm_cfg=dict(type='GN', num_groups=16),
        num_outs=3),
    encoder=dict(
        num_layers=1,
        layer_cfg=dict(self_attn_cfg=attention, ffn_cfg=feed_forward)),
    decoder=dict(
        num_layers=3,
        return_intermediate=True,
        layer_cfg=dict(
            self_attn_cfg=dict(embed_dims=width, num_heads=4, dropout=0.0),
            cross_attn_cfg=attention,
            ffn_cfg=feed_forward),
        post_norm_cfg=None),
    positional_encoding=dict(
        num_feats=width // 2, normalize=True, offset=0.0, temperature=20),
    bbox_head=dict(
        type='DINOHead',
        num_classes=6,
        embed_dims=width,
        sync_cls_avg_factor=True,
        loss_cls=dict(
            type='FocalLoss',
            use_sigmoid=True,
            gamma=2.0,
            alpha=0.25,
            loss_weight=1.0),
        loss_bbox=dict(type='L1Loss', loss_weight=5.0),
        loss_iou=dict(type='GIoULoss', loss_weight=2.0)),
    dn_cfg=dict(
        label_noise_scale=0.5,
        box_noise_scale=1.0,
        group_cfg=dict(dynamic=True, num_groups=None, num_dn_queries=40)),
    train_cfg=dict(
        assigner=dict(
            type='HungarianAssigner',
            match_costs=[
                dict(type='FocalLossCost', weight=2.0),
                dict(type='BBoxL1Cost', weight=5.0, box_format='xywh'),
                dict(type='IoUCost', iou_mode='giou', weight=2.0)
            ])),
    test_cfg=dict(max_per_img=60))
