# One class of CIFAR-10-LT against the rest, 8:1:1, gt_label 0 or 1. The stable
# AP paper does not name its positive classes; set `positive` and
# `imbalance_ratio` (10, 50, 100) of all three data sets alike. data/cifar10
# holds cifar-10-batches-py/, or what tools/dataset_converters/cifar10.py
# writes.
dataset_type = 'mmrank.CIFAR10BinaryLT'
data_root = 'data/cifar10/'
binary_task = dict(positive='bird', imbalance_ratio=100, seed=0)

# CIFAR's images are in RGB already.
data_preprocessor = dict(
    type='mmpretrain.ClsDataPreprocessor',
    mean=[125.307, 122.961, 113.8575],
    std=[51.5865, 50.847, 51.255],
    to_rgb=False)

train_pipeline = [
    dict(type='RandomCrop', crop_size=32, padding=4),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackInputs')
]
test_pipeline = [dict(type='PackInputs')]

train_dataloader = dict(
    batch_size=128,
    num_workers=2,
    persistent_workers=True,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        split='train',
        pipeline=train_pipeline,
        **binary_task))
val_dataloader = dict(
    batch_size=512,
    num_workers=2,
    persistent_workers=True,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        split='val',
        test_mode=True,
        pipeline=test_pipeline,
        **binary_task))
test_dataloader = dict(
    batch_size=512,
    num_workers=2,
    persistent_workers=True,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        split='test',
        test_mode=True,
        pipeline=test_pipeline,
        **binary_task))
