# ResNet-50 from ImageNet weights with frozen batch norm and a linear
# embedding; its length is set by the inheriting config.
model = dict(
    type='mmrank.EmbeddingRetriever',
    freeze_bn=True,
    image_encoder=[
        dict(
            type='mmpretrain.ResNet',
            depth=50,
            out_indices=(3, ),
            init_cfg=dict(
                type='Pretrained', checkpoint='torchvision://resnet50')),
        dict(type='mmpretrain.GlobalAveragePooling'),
        dict(
            type='mmpretrain.LinearNeck',
            in_channels=2048,
            out_channels=512,
            norm_cfg=None,
            act_cfg=None),
    ],
    head=dict(type='mmrank.RetrievalHead'))
