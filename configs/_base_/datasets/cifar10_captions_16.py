# CIFAR-10 with made-up captions at 16 x 16, long-tailed, for small experiments on
# a CPU. Make data/cifar10_captions with
#   python tools/dataset_converters/make_captions.py cifar10_jpg \
#       data/cifar10_captions --size 16 --per-class 1000 --imbalance 10
# Training: 4,084 images, 1,000 airplanes to 100 trucks, two captions each = 8,168
# pairs. Validation and test: 100 images a class, two captions each.
dataset_type = 'mmrank.CaptionTable'
data_root = 'data/cifar10_captions/'
classes = ('airplane', 'automobile', 'bird', 'cat', 'deer', 'dog', 'frog',
           'horse', 'ship', 'truck')

data_preprocessor = dict(
    type='mmpretrain.ClsDataPreprocessor',
    mean=[125.0, 123.0, 114.0], std=[63.0, 62.0, 67.0], to_rgb=True)

pack_inputs = dict(
    type='PackInputs',
    algorithm_keys=['text'],
    meta_keys=['sample_idx', 'image_id', 'text_id', 'img_path'])
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomCrop', crop_size=16, padding=2),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    pack_inputs,
]
test_pipeline = [dict(type='LoadImageFromFile'), pack_inputs]

# Without workers a resumed run is exact at every iteration.
train_dataloader = dict(
    batch_size=128,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(
        type='mmrank.InBatchPairSampler', batch_size=128, infinite=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        ann_file='train.jsonl',
        label_key='label',
        classes=classes,
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=500,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        ann_file='val.jsonl',
        label_key='label',
        classes=classes,
        test_mode=True,
        pipeline=test_pipeline))
test_dataloader = dict(
    batch_size=500,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        ann_file='test.jsonl',
        label_key='label',
        classes=classes,
        test_mode=True,
        pipeline=test_pipeline))

# Many images share a caption, so any image with a caption is one to find.
val_evaluator = [
    dict(
        type='mmrank.ImageTextRetrievalMetric', recall_at=(1, 10),
        merge_texts=True),
    dict(type='mmpretrain.Accuracy', topk=(1, 5)),
]
test_evaluator = val_evaluator
