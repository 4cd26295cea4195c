# Stanford Online Products on stable AP, the paper's settings (section 7.1).
# Trained on the training and validation classes together, as the published
# comparisons are; the validation figures are then those of classes seen. To tune,
# set train_dataloader.dataset.split=train and model.head.num_classes to the number
# that tools/dataset_converters/check_retrieval.py prints.
_base_ = [
    'mmpretrain::_base_/default_runtime.py',
    '../_base_/models/r50_retriever.py',
    '../_base_/datasets/sop_28x4.py',
]

model = dict(
    image_encoder=[
        dict(
            type='mmrank.DeepFeatureMixup',
            u=0.9,
            stages=('layer3', 'layer4'),
            backbone=dict(
                type='mmpretrain.ResNet',
                depth=50,
                out_indices=(3, ),
                init_cfg=dict(
                    type='Pretrained', checkpoint='torchvision://resnet50'))),
        dict(type='mmpretrain.GlobalAveragePooling'),
        dict(
            type='mmpretrain.LinearNeck',
            in_channels=2048,
            out_channels=256,
            norm_cfg=None,
            act_cfg=None),
    ],
    head=dict(
        num_classes=11318,
        loss=dict(
            type='mmrank.StableAPLoss',
            mode='per_class',
            mean_scope='global',
            rho='batch',
            tau=0.1,
            score_range=(-1.0, 1.0),
            score_penalty=0.0)))
train_dataloader = dict(dataset=dict(split='trainval'))

train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=100000, val_interval=10000)
val_cfg = dict()
test_cfg = dict()

optim_wrapper = dict(
    optimizer=dict(
        type='mmrank.SUM', lr=0.003, momentum=0.9, s=1.0, weight_decay=4e-5))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=False, milestones=[60000, 80000], gamma=0.1)
]

default_hooks = dict(
    logger=dict(interval=100),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook',
        by_epoch=False,
        interval=5000,
        max_keep_ckpts=3))
custom_hooks = [
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
log_processor = dict(by_epoch=False)
randomness = dict(seed=0)
auto_scale_lr = dict(base_batch_size=112)
