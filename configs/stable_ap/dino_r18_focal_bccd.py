# The baseline of dino_r18_stable-ap_bccd.py.
_base_ = [
    'mmdet::_base_/default_runtime.py',
    '../_base_/models/resnet18_fpn_small.py',
    '../_base_/datasets/bccd.py',
]

# A DINO small enough to train from scratch on two CPU cores: ResNet-18 at half
# width, three levels of 64 channels, one encoder and three decoder layers.
# `loss_cls` is stock focal loss; a ranking loss overrides nothing but the head's type
# and `loss_cls`.
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
        num_classes=3,
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

# Matching needs more visits than anchors do: 24 epochs, a short warm-up, then
# a cosine.
max_epochs = 24
train_cfg = dict(
    type='EpochBasedTrainLoop', max_epochs=max_epochs, val_interval=6)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=1e-4),
    clip_grad=dict(max_norm=1.0))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.05, by_epoch=False, begin=0, end=50),
    dict(
        type='CosineAnnealingLR',
        T_max=max_epochs,
        eta_min_ratio=0.02,
        by_epoch=True,
        begin=0,
        end=max_epochs,
        convert_to_iter_based=True)
]
randomness = dict(seed=0)

default_hooks = dict(
    logger=dict(interval=10),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook', interval=1, max_keep_ckpts=1))
custom_hooks = [dict(type='mmrank.RNGStateHook')]
log_processor = dict(window_size=10)
