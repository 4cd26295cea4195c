# Conceptual Captions 3M at 256 x 256, and Flickr30K and COCO in Karpathy's splits
# for zero-shot retrieval. data/cc3m/train.tsv has a line of names, filepath and
# title, and then a line for each image that could be fetched.
data_preprocessor = dict(
    type='mmpretrain.ClsDataPreprocessor',
    mean=[122.771, 116.746, 104.094],
    std=[68.501, 66.632, 70.323],
    to_rgb=True)

pack_inputs = dict(
    type='PackInputs',
    algorithm_keys=['text'],
    meta_keys=['sample_idx', 'image_id', 'text_id', 'img_path'])
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='RandomResizedCrop', scale=256, crop_ratio_range=(0.5, 1.0),
        interpolation='bicubic'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(
        type='RandAugment',
        num_policies=2,
        magnitude_level=7,
        total_level=10,
        policies=[
            dict(type='AutoContrast'),
            dict(type='Equalize'),
            dict(type='Brightness', magnitude_range=(0.1, 1.9)),
            dict(type='Sharpness', magnitude_range=(0.1, 1.9)),
            dict(
                type='Shear', magnitude_range=(0, 0.3),
                direction='horizontal'),
            dict(
                type='Shear', magnitude_range=(0, 0.3), direction='vertical'),
            dict(
                type='Translate', magnitude_range=(0, 0.45),
                direction='horizontal'),
            dict(
                type='Translate', magnitude_range=(0, 0.45),
                direction='vertical'),
            dict(type='Rotate', magnitude_range=(0, 30)),
        ]),
    pack_inputs,
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(256, 256), interpolation='bicubic'),
    pack_inputs,
]

train_dataloader = dict(
    batch_size=256,
    num_workers=8,
    persistent_workers=True,
    drop_last=True,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type='mmrank.CaptionTable',
        data_root='data/cc3m/',
        ann_file='train.tsv',
        image_key='filepath',
        caption_key='title',
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='mmrank.KarpathyCaptions',
        data_root='data/coco/',
        ann_file='annotations/dataset_coco.json',
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
        type='mmrank.KarpathyCaptions',
        data_root='data/flickr30k/',
        ann_file='dataset_flickr30k.json',
        data_prefix='flickr30k_images',
        split='test',
        test_mode=True,
        pipeline=test_pipeline))

val_evaluator = dict(
    type='mmrank.ImageTextRetrievalMetric', recall_at=(1, 5, 10))
test_evaluator = val_evaluator

# After Flickr30K: COCO's 5,000 test images, and zero-shot classification.
images = dict(
    batch_size=128,
    num_workers=8,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False))
small_pipeline = [
    dict(type='Resize', scale=(256, 256), interpolation='bicubic'),
    dict(type='PackInputs'),
]
templates = ('a photo of a {}.', )
accuracy = dict(type='mmpretrain.Accuracy', topk=(1, 3, 5))
further_tests = dict(
    coco=dict(
        dataloader=dict(
            images,
            dataset=dict(
                type='mmrank.KarpathyCaptions',
                data_root='data/coco/',
                ann_file='annotations/dataset_coco.json',
                split='test',
                test_mode=True,
                pipeline=test_pipeline)),
        evaluator=test_evaluator),
    cifar10=dict(
        dataloader=dict(
            images,
            dataset=dict(
                type='CIFAR10',
                data_root='data/cifar10/',
                split='test',
                pipeline=small_pipeline)),
        evaluator=accuracy,
        zero_shot=dict(classes='cifar10', templates=templates)),
    cifar100=dict(
        dataloader=dict(
            images,
            dataset=dict(
                type='CIFAR100',
                data_root='data/cifar100/',
                split='test',
                pipeline=small_pipeline)),
        evaluator=accuracy,
        zero_shot=dict(classes='cifar100', templates=templates)),
    imagenet=dict(
        dataloader=dict(
            images,
            dataset=dict(
                type='ImageNet',
                data_root='data/imagenet/',
                split='val',
                pipeline=[
                    dict(type='LoadImageFromFile'),
                    dict(
                        type='ResizeEdge',
                        scale=256,
                        edge='short',
                        interpolation='bicubic'),
                    dict(type='CenterCrop', crop_size=256),
                    dict(type='PackInputs'),
                ])),
        evaluator=accuracy,
        zero_shot=dict(classes='imagenet', templates=templates)))
