# Stanford Online Products on SOPRC, the paper's settings (section 5.1), but for the
# step of the score vector: the authors' code has 0.1 where the paper says 0.001.
# Trained on the training and validation classes together, as the published
# comparisons are; the validation figures are then those of classes seen. To tune,
# set train_dataloader.dataset.split=train and model.head.num_classes to the number
# that tools/dataset_converters/check_retrieval.py prints.
_base_ = [
    'mmpretrain::_base_/default_runtime.py',
    '../_base_/models/r50_retriever.py',
    '../_base_/datasets/sop_56x4.py',
]

model = dict(
    head=dict(
        num_classes=11318,
        loss=dict(
            type='mmrank.SOPRCLoss',
            mode='per_class',
            prior='counts',
            max_prior=0.1,
            tau1=0.1,
            tau2=0.001,
            vector_length=100,
            momentum=0.1,
            lam1=1.0,
            lam2=1.0)))
train_dataloader = dict(dataset=dict(split='trainval'))

train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=50000, val_interval=10000)
val_cfg = dict()
test_cfg = dict()

optim_wrapper = dict(
    optimizer=dict(type='SGD', lr=0.01, momentum=0.9, weight_decay=4e-4))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=False, milestones=[15000, 30000], gamma=0.1)
]

default_hooks = dict(
    logger=dict(interval=100),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook',
        by_epoch=False,
        interval=5000,
        max_keep_ckpts=3))
custom_hooks = [
    dict(type='mmrank.ClassCountsHook'),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
log_processor = dict(by_epoch=False)
randomness = dict(seed=0)
auto_scale_lr = dict(base_batch_size=224)
