# A linear layer on a frozen ResNet-50. Give the backbone by
#   --cfg-options model.backbone.init_cfg.checkpoint=work_dirs/.../epoch_400.pth
model = dict(
    type='mmpretrain.ImageClassifier',
    backbone=dict(
        type='mmpretrain.ResNet',
        depth=50,
        frozen_stages=4,
        norm_eval=True,
        init_cfg=dict(
            type='Pretrained', checkpoint='', prefix='backbone.')),
    neck=dict(type='mmpretrain.GlobalAveragePooling'),
    head=dict(
        type='mmpretrain.LinearClsHead',
        num_classes=10,
        in_channels=2048,
        loss=dict(type='mmpretrain.CrossEntropyLoss'),
        topk=(1, 5)))
