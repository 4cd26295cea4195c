# PKU VehicleID on SOPRC with the settings of the authors' public code; those
# that the paper prints stand beside them in configs/soprc/README.md.
_base_ = [
    '../_base_/retrieval_runtime.py',
    '../_base_/models/r50_soprc_retriever.py',
    '../_base_/datasets/vehicleid_56x4.py',
]

model = dict(
    head=dict(
        num_classes=11817,
        loss=dict(
            # The code multiplies lam1=1 and lam2=5 by a loss weight of 5.
            lam1=5.0,
            lam2=25.0)))

train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=100000, val_interval=10000)
optim_wrapper = dict(
    optimizer=dict(
        type='SGD',
        lr=0.01,
        momentum=0.9,
        nesterov=True,
        weight_decay=4e-4))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=False, milestones=[60000, 80000],
        gamma=0.3)
]
auto_scale_lr = dict(base_batch_size=224)
custom_hooks = [
    dict(type='mmrank.ClassCountsHook'),
    *_base_.custom_hooks,
]
