# The last stages of EfficientNet-Lite0 on stored outputs of the others, with 81
# sigmoid scores; see efficientnet-lite0_cached_retriever.py.
model = dict(
    type='mmpretrain.ImageClassifier',
    backbone=dict(
        type='mmrank.TIMMStages',
        model_name='tf_efficientnet_lite0',
        start=6,
        freeze_bn=True,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='data/pretrained/efficientnet_lite0.pth')),
    neck=dict(type='mmpretrain.GlobalAveragePooling'),
    head=dict(type='mmrank.OneVsRestHead', num_classes=81, in_channels=1280))
