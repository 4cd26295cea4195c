# Retrieval of characters of unseen alphabets, trained on stable AP. The other
# losses of configs/soprc/omniglot_losses.yaml inherit from this file.
_base_ = [
    'mmpretrain::_base_/default_runtime.py',
    '../_base_/models/conv4_retriever.py',
    '../_base_/datasets/omniglot_28_pk.py',
    '../_base_/schedules/schedule_omniglot.py',
]

model = dict(
    head=dict(
        num_classes=66,
        loss=dict(
            type='mmrank.StableAPLoss',
            mode='per_class',
            mean_scope='global',
            tau=0.3,
            score_range=(-1.0, 1.0),
            score_penalty=0.0)))

default_hooks = dict(
    logger=dict(interval=50),
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
