# Stanford Online Products on SOPRC, the paper's settings.
# Trained on training and validation classes together, so validation measures
# classes seen. To tune: train_dataloader.dataset.split=train, and num_classes
# as tools/dataset_converters/check_retrieval.py counts them.
_base_ = [
    '../_base_/retrieval_runtime.py',
    '../_base_/models/r50_soprc_retriever.py',
    '../_base_/datasets/sop_56x4.py',
]

model = dict(head=dict(num_classes=11318))
train_dataloader = dict(dataset=dict(split='trainval'))

train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=50000, val_interval=10000)
optim_wrapper = dict(
    optimizer=dict(
        type='SGD', lr=0.01, momentum=0.9, weight_decay=4e-4))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=False, milestones=[15000, 30000],
        gamma=0.1)
]
auto_scale_lr = dict(base_batch_size=224)
custom_hooks = [
    dict(type='mmrank.ClassCountsHook'),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
