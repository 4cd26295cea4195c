# SimCLR on iNaturalist-2018: batch 256 in all, 400 epochs.
_base_ = [
    'mmpretrain::_base_/datasets/imagenet_bs32_simclr.py',
    '../_base_/models/r50_vicreg-projector_two-view.py',
    '../_base_/schedules/schedule_lars_400e.py',
    '../_base_/selfsup_runtime.py',
]

# iNaturalist-2018: two views of each image at 224 x 224. data/inaturalist2018
# holds train_val2018/; make the lists with
#   python tools/dataset_converters/image_list.py inaturalist train2018.json \
#       data/inaturalist2018/train.txt
# and the same for val. num_samples of the loss: 437513.
images = dict(
    type='mmpretrain.CustomDataset',
    data_root='data/inaturalist2018/',
    ann_file='train.txt')
train_dataloader = dict(
    batch_size=256,
    num_workers=8,
    drop_last=True,
    dataset=dict(images, _delete_=True, pipeline=_base_.train_pipeline))

model = dict(loss=dict(type='mmrank.InfoNCELoss', tau=0.3))
optim_wrapper = dict(optimizer=dict(lr=1.2))
auto_scale_lr = dict(base_batch_size=256)

test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=256, edge='short', backend='pillow'),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs'),
]
test_dataloader = dict(
    batch_size=256,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='mmrank.IndexedConcatDataset',
        datasets=[
            dict(images, pipeline=test_pipeline),
            dict(
                images,
                ann_file='val.txt',
                pipeline=test_pipeline),
        ]))
