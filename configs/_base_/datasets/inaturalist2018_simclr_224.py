# iNaturalist-2018: two views of each image at 224 x 224. data/inaturalist2018
# holds train_val2018/; make the lists with
#   python tools/dataset_converters/image_list.py inaturalist train2018.json \
#       data/inaturalist2018/train.txt
# and the same for val. num_samples of the loss: 437513.
_base_ = 'mmpretrain::_base_/datasets/imagenet_bs32_simclr.py'

train_dataloader = dict(
    batch_size=256,
    num_workers=8,
    drop_last=True,
    dataset=dict(
        _delete_=True,
        type='mmpretrain.CustomDataset',
        data_root='data/inaturalist2018/',
        ann_file='train.txt',
        pipeline=_base_.train_pipeline))
