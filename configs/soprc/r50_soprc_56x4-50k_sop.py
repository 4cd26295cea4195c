# Stanford Online Products on SOPRC with the settings of the authors' public code; those
# that the paper prints stand beside them in configs/soprc/README.md.
_base_ = [
    '../_base_/retrieval_runtime.py',
    '../_base_/models/r50_soprc_retriever.py',
    '../_base_/datasets/sop_56x4.py',
]

model = dict(
    head=dict(
        num_classes=10181,
        loss=dict(
            max_prior=0.01)))

train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=50000, val_interval=10000)
optim_wrapper = dict(
    optimizer=dict(
        type='SGD',
        lr=0.003,
        momentum=0.9,
        nesterov=True,
        weight_decay=4e-4))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=False, milestones=[15000, 30000],
        gamma=0.1)
]
auto_scale_lr = dict(base_batch_size=224)
custom_hooks = [
    dict(type='mmrank.ClassCountsHook'),
    *_base_.custom_hooks,
]
