# Fine-tuning of the last stages of EfficientNet-Lite0 on grocery products, 90
# iterations of 56 images; the embedding is new and learns ten times as fast. The
# loss is set by the inheriting config.
_base_ = [
    './fine_tuning_runtime.py',
    './models/efficientnet-lite0_retriever.py',
    './datasets/grocery_128_pk.py',
]

# grocery_128_pk.py on stored feature maps. Make data/grocery/stage6 with
#   python tools/dataset_converters/cache_features.py \
#       configs/metric_learning/efficientnet-lite0_frozen_grocery.py \
#       data/grocery/stage6 --views 4
cache = 'data/grocery/stage6'
train_pipeline = [
    dict(type='mmrank.LoadCachedFeatures', cache=cache, random_view=True),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='mmrank.LoadCachedFeatures', cache=cache),
    dict(type='PackInputs'),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = dict(dataset=dict(pipeline=test_pipeline))

# The stages behind the frozen ones of metric_learning/efficientnet-lite0_frozen_grocery.py,
# on what tools/dataset_converters/cache_features.py stored of these: the same
# network, trained in seconds on a CPU.
model = dict(
    # The stored maps are no pixels.
    data_preprocessor=dict(mean=None, std=None, to_rgb=False),
    image_encoder=[
        dict(
            type='mmrank.TIMMStages',
            model_name='tf_efficientnet_lite0',
            start=6,
            init_cfg=dict(
                type='Pretrained',
                checkpoint='mmrank://efficientnet_lite0')),
        *_base_.model.image_encoder[1:],
    ])

max_iters = 90
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=max_iters, val_interval=max_iters + 1)
optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=1e-4, weight_decay=4e-4),
    paramwise_cfg=dict(custom_keys={'image_encoder.2': dict(lr_mult=10.0)}))
param_scheduler = [
    dict(
        type='CosineAnnealingLR', T_max=max_iters, by_epoch=False, begin=0,
        end=max_iters)
]
auto_scale_lr = dict(base_batch_size=56)
default_hooks = dict(
    logger=dict(interval=30), checkpoint=dict(interval=max_iters))
