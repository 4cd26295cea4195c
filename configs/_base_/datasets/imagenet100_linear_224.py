# ImageNet-100, labelled, for linear evaluation; lists as in
# imagenet100_simclr_224.py.
_base_ = 'mmpretrain::_base_/datasets/imagenet_bs32.py'

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
