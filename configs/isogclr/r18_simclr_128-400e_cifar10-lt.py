# SimCLR on CIFAR-10-LT: batch 128 in all, 400 epochs.
_base_ = [
    '../_base_/datasets/cifar10_lt_simclr_224.py',
    '../_base_/models/r18_vicreg-projector_two-view.py',
    '../_base_/schedules/schedule_lars_400e.py',
    '../_base_/selfsup_runtime.py',
]

model = dict(loss=dict(type='mmrank.InfoNCELoss', tau=0.5))
auto_scale_lr = dict(base_batch_size=128)

test_pipeline = [
    dict(type='Resize', scale=224),
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
                _base_.train_dataloader.dataset, split='test',
                pipeline=test_pipeline),
        ]))
