# iNaturalist-2018 on stable AP, the paper's settings.
# Trained on training and validation classes together, so validation measures
# classes seen. To tune: train_dataloader.dataset.split=train, and num_classes
# as tools/dataset_converters/check_retrieval.py counts them.
_base_ = [
    '../_base_/retrieval_runtime.py',
    '../_base_/models/r50_stable-ap_retriever.py',
    '../_base_/datasets/inaturalist2018_retrieval_28x4.py',
]

model = dict(head=dict(num_classes=5690))
train_dataloader = dict(dataset=dict(split='trainval'))

train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=270000, val_interval=10000)
optim_wrapper = dict(
    optimizer=dict(
        type='mmrank.SUM', lr=0.001, momentum=0.9, s=1.0, weight_decay=4e-5))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=False, milestones=[150000, 220000],
        gamma=0.3)
]
auto_scale_lr = dict(base_batch_size=112)
