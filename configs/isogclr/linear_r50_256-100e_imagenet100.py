# Linear evaluation on ImageNet-100 of the backbone of any of the three methods.
_base_ = [
    'mmpretrain::_base_/datasets/imagenet_bs32.py',
    '../_base_/models/r50_linear_classifier.py',
    '../_base_/schedules/schedule_linear_100e.py',
    'mmpretrain::_base_/default_runtime.py',
]

# ImageNet-100, labelled, for linear evaluation; lists as in
# r50_simclr_256-400e_imagenet100.py.
data_preprocessor = dict(num_classes=100)
train_dataloader = dict(
    batch_size=256,
    dataset=dict(
        _delete_=True,
        type='mmpretrain.CustomDataset',
        data_root='data/imagenet/',
        data_prefix='train',
        ann_file='meta/train100.txt',
        pipeline=_base_.train_pipeline))
val_dataloader = dict(
    batch_size=256,
    dataset=dict(
        _delete_=True,
        type='mmpretrain.CustomDataset',
        data_root='data/imagenet/',
        data_prefix='val',
        ann_file='meta/val100.txt',
        pipeline=_base_.test_pipeline))
test_dataloader = val_dataloader

model = dict(head=dict(num_classes=100))
default_hooks = dict(checkpoint=dict(interval=10, max_keep_ckpts=1))
randomness = dict(seed=0)
