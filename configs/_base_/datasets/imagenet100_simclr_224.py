# ImageNet-100: two views of each image at 224 x 224. data/imagenet holds train/ and
# val/ with a folder for each class; make the lists of the 100 classes with
#   python tools/dataset_converters/image_list.py folders data/imagenet/train \
#       imagenet100.txt data/imagenet/meta/train100.txt
# and the same for val. num_samples of the loss is the length of the list: 126689
# for the classes of Tian et al., Contrastive Multiview Coding, ECCV 2020.
_base_ = 'mmpretrain::_base_/datasets/imagenet_bs32_simclr.py'

images = dict(
    type='mmpretrain.CustomDataset',
    data_root='data/imagenet/',
    data_prefix='train',
    ann_file='meta/train100.txt')
train_dataloader = dict(
    batch_size=256,
    num_workers=8,
    drop_last=True,
    dataset=dict(images, _delete_=True, pipeline=_base_.train_pipeline))

test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=256, edge='short', backend='pillow'),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs'),
]
labelled = dict(images, pipeline=test_pipeline)
test_dataloader = dict(
    batch_size=256,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='mmrank.IndexedConcatDataset',
        datasets=[
            labelled,
            dict(labelled, data_prefix='val', ann_file='meta/val100.txt'),
        ]))
# There are no other labelled images.
val_dataloader = test_dataloader
