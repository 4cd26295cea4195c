# SimCLR on iNaturalist-2018: batch 256 in all, 400 epochs.
_base_ = [
    '../_base_/datasets/inaturalist2018_simclr_224.py',
    '../_base_/models/r50_vicreg-projector_two-view.py',
    '../_base_/schedules/schedule_lars_400e.py',
    '../_base_/selfsup_runtime.py',
]

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
            dict(_base_.train_dataloader.dataset, pipeline=test_pipeline),
            dict(
                _base_.train_dataloader.dataset,
                ann_file='val.txt',
                pipeline=test_pipeline),
        ]))
