# Omniglot at 28 x 28 for small experiments on a CPU, retrieval of characters
# of alphabets that were not trained on. Unpack the zip, and make data/omniglot with
#   python tools/dataset_converters/omniglot.py images_background_small1 \
#       data/omniglot --size 28
# Grey, ink 1 on 0. Training: 66 characters x 20 drawings, validation 24 x 20,
# test 46 x 20. Batches of 28 classes x 4 images; for others set batch_size of
# loader and sampler alike.
dataset_type = 'mmrank.Omniglot'
data_root = 'data/omniglot/'
train_alphabets = ('Korean', 'Latin')
val_alphabets = ('Greek', )
test_alphabets = ('Balinese', 'Early_Aramaic')

data_preprocessor = dict(
    type='mmpretrain.ClsDataPreprocessor', mean=[0.0], std=[255.0])

# Small rotations and shifts only: a mirrored or turned character may be
# another one.
train_pipeline = [
    dict(type='LoadImageFromFile', color_type='grayscale'),
    dict(
        type='Rotate', magnitude_range=(0, 15), magnitude_std='inf', prob=1.0,
        pad_val=0, interpolation='bilinear'),
    dict(type='RandomCrop', crop_size=28, padding=2),
    dict(type='PackInputs')
]
test_pipeline = [
    dict(type='LoadImageFromFile', color_type='grayscale'),
    dict(type='PackInputs')
]
# Loading takes about 20 ms a batch on one core, so no worker is needed, and
# without workers a resumed run is exact at every iteration.
train_dataloader = dict(
    batch_size=112,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(
        type='mmrank.PKSampler', batch_size=112, num_per_class=4,
        infinite=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        alphabets=train_alphabets,
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=256,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        alphabets=val_alphabets,
        test_mode=True,
        pipeline=test_pipeline))
test_dataloader = dict(
    batch_size=256,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        alphabets=test_alphabets,
        test_mode=True,
        pipeline=test_pipeline))

val_evaluator = dict(type='mmrank.RetrievalMetric', recall_at=(1, 10))
test_evaluator = dict(type='mmrank.RetrievalMetric', recall_at=(1, 10))
