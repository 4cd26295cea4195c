# What the retrieval benchmarks share, with the settings of stable AP (2025):
# 256 x 256, flip, rotation by up to 15 degrees, random crop 224, batches of
# 28 classes x 4 images.
_base_ = './retrieval_224_56x4.py'

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(256, 256)),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    # Uniform in [-15, 15]. The corners get the mean colour, here still BGR,
    # which the preprocessor turns into zeros.
    dict(
        type='Rotate', magnitude_range=(0, 15), magnitude_std='inf', prob=1.0,
        pad_val=(104, 116, 124), interpolation='bilinear'),
    dict(type='RandomCrop', crop_size=224),
    dict(type='PackInputs')
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(256, 256)),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs')
]
train_dataloader = dict(
    batch_size=112,
    sampler=dict(batch_size=112),
    dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
