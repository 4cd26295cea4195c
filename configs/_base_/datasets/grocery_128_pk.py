# Grocery products at 128 x 128, retrieval of products that were not trained on.
# Make data/grocery with tools/dataset_converters/grocery.py. Half of the 81
# products are for testing, a quarter of the others for validation;
# another split_seed sets other products aside. Batches of 14 products x 4 images.
dataset_type = 'mmrank.ClassFolder'
data_root = 'data/grocery/'
dataset = dict(
    type=dataset_type,
    data_root=data_root,
    ann_file='images.txt',
    test_fraction=0.5,
    val_fraction=0.25,
    split_seed=0)

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='RandomResizedCrop', scale=128, crop_ratio_range=(0.5, 1.0),
        interpolation='bilinear'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=144, edge='short'),
    dict(type='CenterCrop', crop_size=128),
    dict(type='PackInputs'),
]
# Without workers a resumed run is exact at every iteration.
train_dataloader = dict(
    batch_size=56,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(
        type='mmrank.PKSampler', batch_size=56, num_per_class=4,
        infinite=True),
    dataset=dict(dataset, split='trainval', pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=64,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        dataset, split='val', test_mode=True, pipeline=test_pipeline))
test_dataloader = dict(
    batch_size=64,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        dataset, split='test', test_mode=True, pipeline=test_pipeline))
del dataset

val_evaluator = dict(type='mmrank.RetrievalMetric', recall_at=(1, 4))
test_evaluator = dict(type='mmrank.RetrievalMetric', recall_at=(1, 4))
