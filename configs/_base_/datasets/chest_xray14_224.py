# ChestX-ray14, 14 findings, at 224 x 224. data/chest_xray14 holds
# Data_Entry_2017.csv, train_val_list.txt, test_list.txt and images_001/images/
# to images_012/images/ (or images/). One eighth of the patients of
# train_val_list.txt validates. The 8:1:1 of the stable AP paper:
# split_by='patients' in all three data sets.
dataset_type = 'mmrank.ChestXray14'
data_root = 'data/chest_xray14/'

data_preprocessor = dict(
    type='mmpretrain.ClsDataPreprocessor',
    num_classes=14,
    mean=[123.675, 116.28, 103.53],
    std=[58.395, 57.12, 57.375],
    to_rgb=True)

# No colour jitter and no hard crops: findings are small, grey and placed.
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='RandomResizedCrop', scale=224, crop_ratio_range=(0.7, 1.0)),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackInputs')
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=256),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs')
]

train_dataloader = dict(
    batch_size=64,
    num_workers=8,
    persistent_workers=True,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        split='train',
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        split='val',
        test_mode=True,
        pipeline=test_pipeline))
test_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        split='test',
        test_mode=True,
        pipeline=test_pipeline))
