# ImageNet-100: two views of each image at 224 x 224. data/imagenet holds train/ and
# val/ with a folder for each class; make the lists of the 100 classes with
#   python tools/dataset_converters/image_list.py folders data/imagenet/train \
#       imagenet100.txt data/imagenet/meta/train100.txt
# and the same for val. num_samples of the loss is the length of the list: 126689
# for the classes of Tian et al., Contrastive Multiview Coding, ECCV 2020.
_base_ = 'mmpretrain::_base_/datasets/imagenet_bs32_simclr.py'

train_dataloader = dict(
    batch_size=256,
    num_workers=8,
    drop_last=True,
    dataset=dict(
        _delete_=True,
        type='mmpretrain.CustomDataset',
        data_root='data/imagenet/',
        data_prefix='train',
        ann_file='meta/train100.txt',
        pipeline=_base_.train_pipeline))
