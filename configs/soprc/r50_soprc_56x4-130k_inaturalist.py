# iNaturalist-2018 on SOPRC, the paper's settings.
# Trained on training and validation classes together, so validation measures
# classes seen. To tune: train_dataloader.dataset.split=train, and num_classes
# as tools/dataset_converters/check_retrieval.py counts them.
_base_ = [
    '../_base_/retrieval_runtime.py',
    '../_base_/models/r50_soprc_retriever.py',
    '../_base_/datasets/inaturalist2018_retrieval_56x4.py',
]

model = dict(head=dict(num_classes=5690))
train_dataloader = dict(dataset=dict(split='trainval'))

train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=130000, val_interval=10000)
optim_wrapper = dict(
    optimizer=dict(
        type='SGD', lr=0.001, momentum=0.9, weight_decay=4e-4))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=False, milestones=[80000, 110000],
        gamma=0.1)
]
auto_scale_lr = dict(base_batch_size=224)
custom_hooks = [
    dict(type='mmrank.ClassCountsHook'),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
