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
        *_base_.model.image_encoder[1:],
    ])
