_base_ = '../_base_/fine_tuning_runtime.py'

# The 81 grocery products, one against the rest, on stored feature maps; the
# published split of 2,640, 296 and 2,485 photographs. Make data/grocery with
# tools/dataset_converters/grocery.py, and data/grocery/stage6 as
# _base_/retrieval_grocery.py says. Its own tail is 16 to 70 images a product;
# ann_file='train_ratio50.txt' has a longer one.
dataset_type = 'mmpretrain.CustomDataset'
data_root = 'data/grocery/'
cache = 'data/grocery/stage6'
train_pipeline = [
    dict(type='mmrank.LoadCachedFeatures', cache=cache, random_view=True),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='mmrank.LoadCachedFeatures', cache=cache),
    dict(type='PackInputs'),
]
# The stored maps are no pixels.
data_preprocessor = dict(
    type='mmpretrain.ClsDataPreprocessor', mean=None, std=None, to_rgb=False)

train_dataloader = dict(
    batch_size=96,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        ann_file='train.txt',
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=128,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        ann_file='val.txt',
        test_mode=True,
        pipeline=test_pipeline))
test_dataloader = dict(
    batch_size=128,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        ann_file='test.txt',
        test_mode=True,
        pipeline=test_pipeline))

# Some products have no validation photograph.
val_evaluator = dict(type='mmrank.AveragePrecisionMetric', skip_empty=True)
test_evaluator = dict(type='mmrank.AveragePrecisionMetric')

# The last stages of EfficientNet-Lite0 on stored outputs of the others, with 81
# sigmoid scores.
model = dict(
    type='mmpretrain.ImageClassifier',
    backbone=dict(
        type='mmrank.TIMMStages',
        model_name='tf_efficientnet_lite0',
        start=6,
        freeze_bn=True,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='mmrank://efficientnet_lite0')),
    neck=dict(type='mmpretrain.GlobalAveragePooling'),
    head=dict(
        type='mmrank.OneVsRestHead',
        num_classes=81,
        in_channels=1280,
        # One ranking of all products: a product has 1.2 photographs in a batch,
        # too few for a ranking of its own.
        loss=dict(type='mmrank.StableAPLoss', tau='auto')))

# Fine-tuning of the last stages of EfficientNet-Lite0 on 81 grocery products, one
# against the rest: 120 iterations of 96 images, four passes. The layer of the
# scores is new and learns ten times as fast; so does conv_head, the last layer of
# the network, without which class-balanced cross-entropy loses 5 mAP.
max_iters = 120
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=max_iters, val_interval=max_iters + 1)
optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=1e-4, weight_decay=0.01),
    paramwise_cfg=dict(
        custom_keys={
            'head.fc': dict(lr_mult=10.0),
            'backbone.timm_model.conv_head': dict(lr_mult=10.0),
        }))
param_scheduler = [
    dict(
        type='CosineAnnealingLR', T_max=max_iters, by_epoch=False, begin=0,
        end=max_iters)
]
auto_scale_lr = dict(base_batch_size=96)
default_hooks = dict(
    logger=dict(interval=50), checkpoint=dict(interval=max_iters))
custom_hooks = [
    dict(type='mmrank.ClassCountsHook'),
    dict(
        type='mmrank.DeferredReweightingHook', begin=3 * max_iters // 4,
        by_epoch=False),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
