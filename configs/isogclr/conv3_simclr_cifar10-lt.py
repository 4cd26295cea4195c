# SimCLR on CIFAR-10-LT at 16 x 16, for a CPU.
_base_ = 'mmpretrain::_base_/default_runtime.py'

# CIFAR-10-LT (ratio 100) shrunk to 16 x 16 for small experiments on a CPU: the
# loader gives images, the model makes the views, and features of the long tail
# are evaluated on balanced images. Make data/cifar10_16 with
#   python tools/dataset_converters/cifar10.py cifar10_jpg data/cifar10_16 --size 16
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

# Three convolution blocks, 48-d features, and SimCLR's projector, for 16 x 16
# colour images.
model = dict(
    type='mmrank.TwoViewLearner',
    backbone=dict(
        type='mmrank.SmallConvNet', in_channels=3, channels=48, num_blocks=3),
    neck=dict(
        type='mmpretrain.NonLinearNeck',
        in_channels=48,
        hid_channels=128,
        out_channels=128,
        num_layers=2,
        with_last_bn=False,
        norm_cfg=dict(type='BN1d')),
    loss=dict(type='mmrank.InfoNCELoss', tau=0.1))

# 12 epochs of CIFAR-10-LT at 16 x 16: two and a half minutes on one CPU core.
max_epochs = 12
train_cfg = dict(by_epoch=True, max_epochs=max_epochs, val_interval=max_epochs)
val_cfg = dict()
test_cfg = dict()

optim_wrapper = dict(optimizer=dict(type='AdamW', lr=2e-3, weight_decay=1e-4))
param_scheduler = [
    dict(
        type='CosineAnnealingLR', T_max=max_epochs, by_epoch=True, begin=0,
        end=max_epochs, convert_to_iter_based=True)
]
auto_scale_lr = dict(base_batch_size=256)

default_hooks = dict(
    logger=dict(interval=20),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook', interval=3, max_keep_ckpts=1))
custom_hooks = [
    dict(type='mmrank.SampleIndexHook'),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
randomness = dict(seed=0)
