# iNaturalist-2018, labelled, for linear evaluation; lists as in
# inaturalist2018_simclr_224.py.
_base_ = 'mmpretrain::_base_/datasets/imagenet_bs32.py'

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
