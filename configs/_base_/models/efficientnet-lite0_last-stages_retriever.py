# EfficientNet-Lite0 from ImageNet weights, of which the last stages are trained,
# with frozen batch norm and a linear embedding.
# tools/model_converters/efficientnet_lite0.py writes the weights.
_base_ = './efficientnet-lite0_retriever.py'

model = dict(
    image_encoder=[
        dict(
            type='mmrank.TIMMStages',
            model_name='tf_efficientnet_lite0',
            frozen_stages=6,
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
    ])
