# What the retrieval benchmarks share, with the settings of SOPRC (NeurIPS
# 2022): short side 256, random crop 224, flip, batches of 56 classes x 4
# images. A file that inherits from this one names the data set.
#
# The sampler's batch_size counts the images of all GPUs, the data loader's
# those of one: on 4 GPUs set train_dataloader.batch_size=56 and leave the
# sampler's 224.
data_preprocessor = dict(
    type='mmpretrain.ClsDataPreprocessor',
    mean=[123.675, 116.28, 103.53],
    std=[58.395, 57.12, 57.375],
    to_rgb=True)

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=256, edge='short'),
    dict(type='RandomCrop', crop_size=224),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs')
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=256, edge='short'),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs')
]
train_dataloader = dict(
    batch_size=224,
    num_workers=8,
    persistent_workers=True,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(
        type='mmrank.PKSampler', batch_size=224, num_per_class=4,
        infinite=True),
    dataset=dict(split='train', pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(split='val', test_mode=True, pipeline=test_pipeline))
test_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(split='test', test_mode=True, pipeline=test_pipeline))

# Every image searches all others of its split.
val_evaluator = dict(type='mmrank.RetrievalMetric', recall_at=(1, 10, 100))
test_evaluator = dict(
    type='mmrank.RetrievalMetric', recall_at=(1, 10, 100, 1000))
