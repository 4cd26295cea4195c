# The 81 grocery products, one against the rest, on stored feature maps; the
# published split of 2,640, 296 and 2,485 photographs. Make data/grocery with
# tools/dataset_converters/grocery.py, and data/grocery/stage6 as
# grocery_cached_pk.py says. Its own tail is 16 to 70 images a product;
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
