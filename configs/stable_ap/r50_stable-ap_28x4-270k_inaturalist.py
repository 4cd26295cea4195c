# iNaturalist-2018 on stable AP, the paper's settings. Beside them:
# configs/stable_ap/README.md, "The paper's settings".
_base_ = [
    '../_base_/retrieval_runtime.py',
    '../_base_/models/r50_stable-ap_retriever.py',
    '../_base_/datasets/inaturalist2018_retrieval_28x4.py',
]

model = dict(head=dict(num_classes=5115))

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
# mean_mode='exact' scores each batch again under the previous weights.
custom_hooks = [
    *_base_.custom_hooks,
    dict(type='mmrank.PreviousWeightsHook'),
]
