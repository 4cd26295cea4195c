# Blood cells, 364 images of 640x480, 3 classes, 85 % of the boxes red cells.
# Put or link the folder that holds BCCD/ and annotations/ to data/bccd.
dataset_type = 'CocoDataset'
data_root = 'data/bccd/'
metainfo = dict(
    classes=('RBC', 'WBC', 'Platelets'),
    palette=[(220, 20, 60), (119, 11, 210), (0, 142, 90)])
image_scale = (320, 240)

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='Resize', scale=image_scale, keep_ratio=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackDetInputs')
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=image_scale, keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape',
                   'scale_factor'))
]
train_dataloader = dict(
    batch_size=4,
    num_workers=1,
    persistent_workers=False,
    drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        metainfo=metainfo,
        ann_file='annotations/train.json',
        data_prefix=dict(img='BCCD/JPEGImages/'),
        filter_cfg=dict(filter_empty_gt=True),
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=4,
    num_workers=1,
    persistent_workers=False,
    drop_last=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        metainfo=metainfo,
        ann_file='annotations/val.json',
        data_prefix=dict(img='BCCD/JPEGImages/'),
        test_mode=True,
        pipeline=test_pipeline))
test_dataloader = dict(
    batch_size=4,
    num_workers=1,
    persistent_workers=False,
    drop_last=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        metainfo=metainfo,
        ann_file='annotations/test.json',
        data_prefix=dict(img='BCCD/JPEGImages/'),
        test_mode=True,
        pipeline=test_pipeline))

val_evaluator = dict(
    type='mmrank.CocoMetric',
    ann_file=data_root + 'annotations/val.json',
    metric='bbox',
    classwise=True)
test_evaluator = dict(
    type='mmrank.CocoMetric',
    ann_file=data_root + 'annotations/test.json',
    metric='bbox',
    classwise=True)
