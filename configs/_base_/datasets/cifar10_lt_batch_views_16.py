# CIFAR-10-LT (ratio 100) shrunk to 16 x 16 for small experiments on a CPU: the
# loader gives images, the model makes the views, and features of the long tail
# are evaluated on balanced images. Make data/cifar10_16 with
#   python tools/dataset_converters/cifar10.py cifar10_jpg.zip data/cifar10_16 \
#       --size 16
# 500 images of each class are set aside for validation, so num_samples of the
# loss is 11165.
dataset_type = 'mmrank.CIFAR10LT'
data_root = 'data/cifar10_16/'
num_samples = 11165

data_preprocessor = dict(
    type='mmrank.TwoViewPreprocessor',
    mean=[125.307, 122.961, 113.8575],
    std=[51.5865, 50.847, 51.255],
    channels_last=True)

train_set = dict(
    type=dataset_type,
    data_root=data_root,
    split='train',
    imbalance_ratio=100,
    val_per_class=500,
    serialize_data=False,
    pipeline=[dict(type='PackInputs')])
train_dataloader = dict(
    batch_size=256,
    num_workers=0,
    persistent_workers=False,
    drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=train_set)
val_dataloader = dict(
    batch_size=512,
    num_workers=0,
    persistent_workers=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='mmrank.IndexedConcatDataset',
        datasets=[train_set, dict(train_set, split='val')]))
test_dataloader = dict(
    val_dataloader,
    dataset=dict(
        type='mmrank.IndexedConcatDataset',
        datasets=[train_set, dict(train_set, split='test')]))
val_evaluator = [
    dict(type='mmrank.LinearProbeMetric', per_class=True),
    dict(type='mmrank.KNNMetric'),
]
test_evaluator = val_evaluator
