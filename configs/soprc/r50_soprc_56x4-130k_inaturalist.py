# iNaturalist-2018 on SOPRC with the settings of the authors' public code; those
# that the paper prints stand beside them in configs/soprc/README.md.
_base_ = [
    '../_base_/retrieval_runtime.py',
    '../_base_/models/r50_soprc_retriever.py',
    '../_base_/datasets/inaturalist2018_retrieval_56x4.py',
]

model = dict(
    head=dict(
        num_classes=5115,
        loss=dict(
            momentum=0.001)))

train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=130000, val_interval=10000)
optim_wrapper = dict(
    optimizer=dict(
        type='SGD',
        lr=0.001,
        momentum=0.9,
        nesterov=True,
        weight_decay=4e-4),
    # The code trains the linear embedding at twice the learning rate.
    paramwise_cfg=dict(custom_keys={'image_encoder.2': dict(lr_mult=2.0)}))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=False, milestones=[80000, 110000],
        gamma=0.3)
]
auto_scale_lr = dict(base_batch_size=224)
custom_hooks = [
    dict(type='mmrank.ClassCountsHook'),
    *_base_.custom_hooks,
]
