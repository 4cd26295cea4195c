# Retrieval of characters of unseen alphabets, trained on stable AP. The other
# losses of configs/soprc/omniglot_losses.yaml inherit from this file.
_base_ = [
    'mmpretrain::_base_/default_runtime.py',
    '../_base_/datasets/omniglot_28_pk.py',
]

# Four convolution blocks and a linear embedding, for 28 x 28 grey images.
model = dict(
    type='mmrank.EmbeddingRetriever',
    image_encoder=[
        dict(type='mmrank.SmallConvNet', channels=32),
        dict(type='mmpretrain.GlobalAveragePooling'),
        dict(
            type='mmpretrain.LinearNeck',
            in_channels=32,
            out_channels=64,
            norm_cfg=None,
            act_cfg=None),
    ],
    head=dict(
        type='mmrank.RetrievalHead',
        num_classes=66,
        loss=dict(type='mmrank.StableAPLoss')))

# 300 iterations of 112 images: about half a minute on one CPU core. The
# learning rate is tuned by configs/soprc/omniglot_losses.yaml.
max_iters = 300
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=max_iters, val_interval=max_iters)
val_cfg = dict()
test_cfg = dict()

optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=1e-2, weight_decay=4e-4))
param_scheduler = [
    dict(
        type='CosineAnnealingLR', T_max=max_iters, by_epoch=False, begin=0,
        end=max_iters)
]
auto_scale_lr = dict(base_batch_size=112)

default_hooks = dict(
    logger=dict(interval=50, log_metric_by_epoch=False),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook',
        by_epoch=False,
        interval=150,
        max_keep_ckpts=1))
custom_hooks = [
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
log_processor = dict(by_epoch=False, window_size=10)
randomness = dict(seed=0)
