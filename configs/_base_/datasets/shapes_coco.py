# The generated shapes data set (tools/dataset_converters/make_shapes_coco.py):
# 6 long-tailed classes, 256x192 images, mostly small objects.
dataset_type = 'CocoDataset'
data_root = 'data/shapes_coco/'
metainfo = dict(
    classes=('disk', 'square', 'triangle', 'star', 'ring', 'cross'),
    palette=[(31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40),
             (148, 103, 189), (140, 86, 75)])
image_scale = (256, 192)

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='Resize', scale=image_scale, keep_ratio=True),
    dict(type='RandomFlip', prob=0.5, direction=['horizontal', 'vertical']),
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
# Workers are not kept between epochs: mmengine reseeds them each time, so
# that a resumed run sees the batches of an uninterrupted one.
train_dataloader = dict(
    batch_size=8,
    num_workers=1,
    persistent_workers=False,
    drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        metainfo=metainfo,
        ann_file='annotations/train.json',
        data_prefix=dict(img='train/'),
        filter_cfg=dict(filter_empty_gt=True),
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=8,
    num_workers=1,
    persistent_workers=False,
    drop_last=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        metainfo=metainfo,
        ann_file='annotations/val.json',
        data_prefix=dict(img='val/'),
        test_mode=True,
        pipeline=test_pipeline))
test_dataloader = dict(
    batch_size=8,
    num_workers=1,
    persistent_workers=False,
    drop_last=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        metainfo=metainfo,
        ann_file='annotations/test.json',
        data_prefix=dict(img='test/'),
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
