# EfficientNet-Lite0 from ImageNet weights with frozen batch norm and a linear
# embedding. tools/model_converters/efficientnet_lite0.py writes the weights.
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
                checkpoint='data/pretrained/efficientnet_lite0.pth')),
        dict(type='mmpretrain.GlobalAveragePooling'),
        dict(
            type='mmpretrain.LinearNeck',
            in_channels=1280,
            out_channels=256,
            norm_cfg=None,
            act_cfg=None),
    ],
    head=dict(type='mmrank.RetrievalHead'))
