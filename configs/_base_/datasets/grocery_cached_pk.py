# grocery_128_pk.py on stored feature maps. Make data/grocery/stage6 with
#   python tools/dataset_converters/cache_features.py \
#       configs/metric_learning/efficientnet-lite0_frozen_grocery.py \
#       data/grocery/stage6 --views 4
_base_ = './grocery_128_pk.py'

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
