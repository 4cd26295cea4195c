# CIFAR-10, two views of each image at 224 x 224, as in the iSogCLR paper. data/cifar10
# holds cifar-10-batches-py/, or what tools/dataset_converters/cifar10.py writes.
# num_samples of the loss: 50000. With imbalance_ratio=100 it is CIFAR-10-LT: 12406.
dataset_type = 'mmrank.CIFAR10LT'
data_root = 'data/cifar10/'

# CIFAR's images are in RGB already.
data_preprocessor = dict(
    type='mmpretrain.SelfSupDataPreprocessor',
    mean=[125.307, 122.961, 113.8575],
    std=[51.5865, 50.847, 51.255],
    to_rgb=False)

view_pipeline = [
    dict(type='RandomResizedCrop', scale=224, crop_ratio_range=(0.08, 1.0)),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomApply',
        transforms=[
            dict(
                type='ColorJitter',
                brightness=0.8,
                contrast=0.8,
                saturation=0.8,
                hue=0.2)
        ],
        prob=0.8),
    dict(
        type='RandomGrayscale',
        prob=0.2,
        keep_channels=True,
        channel_weights=(0.2989, 0.587, 0.114)),
    dict(
        type='GaussianBlur',
        magnitude_range=(0.1, 2.0),
        magnitude_std='inf',
        prob=0.5),
]
train_pipeline = [
    dict(type='MultiView', num_views=2, transforms=[view_pipeline]),
    dict(type='PackInputs')
]
images = dict(
    type=dataset_type, data_root=data_root, split='train', imbalance_ratio=1)
train_dataloader = dict(
    batch_size=128,
    num_workers=4,
    persistent_workers=True,
    drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(images, pipeline=train_pipeline))

# What a linear classifier is trained on, and what it classifies. The validation that
# tunes a plan classifies a tenth of the training images, which the network has seen
# without their labels.
test_pipeline = [dict(type='Resize', scale=224), dict(type='PackInputs')]
labelled = dict(images, pipeline=test_pipeline)
test_dataloader = dict(
    batch_size=256,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='mmrank.IndexedConcatDataset',
        datasets=[labelled, dict(labelled, split='test')]))
val_dataloader = dict(
    test_dataloader,
    dataset=dict(
        type='mmrank.IndexedConcatDataset',
        datasets=[
            dict(labelled, val_per_class=500),
            dict(labelled, split='val', val_per_class=500),
        ]))
