# Linear evaluation on iNaturalist-2018 of the backbone of any of the three methods.
_base_ = [
    'mmpretrain::_base_/datasets/imagenet_bs32.py',
    '../_base_/models/r50_linear_classifier.py',
    '../_base_/schedules/schedule_linear_100e.py',
    'mmpretrain::_base_/default_runtime.py',
]

# iNaturalist-2018, labelled, for linear evaluation; lists as in
# r50_simclr_256-400e_inaturalist2018.py.
data_preprocessor = dict(num_classes=8142)
train_dataloader = dict(
    batch_size=256,
    dataset=dict(
        _delete_=True,
        type='mmpretrain.CustomDataset',
        data_root='data/inaturalist2018/',
        ann_file='train.txt',
        pipeline=_base_.train_pipeline))
val_dataloader = dict(
    batch_size=256,
    dataset=dict(
        _delete_=True,
        type='mmpretrain.CustomDataset',
        data_root='data/inaturalist2018/',
        ann_file='val.txt',
        pipeline=_base_.test_pipeline))
test_dataloader = val_dataloader

model = dict(head=dict(num_classes=8142))
default_hooks = dict(checkpoint=dict(interval=10, max_keep_ckpts=1))
randomness = dict(seed=0)
