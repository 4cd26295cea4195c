# The stages behind the frozen ones of efficientnet-lite0_last-stages_retriever.py,
# on what tools/dataset_converters/cache_features.py stored of these: the same
# network, trained in seconds on a CPU.
_base_ = './efficientnet-lite0_retriever.py'

model = dict(
    # The stored maps are no pixels.
    data_preprocessor=dict(mean=None, std=None, to_rgb=False),
    image_encoder=[
        dict(
            type='mmrank.TIMMStages',
            model_name='tf_efficientnet_lite0',
            start=6,
            init_cfg=dict(
                type='Pretrained',
                checkpoint='data/pretrained/efficientnet_lite0.pth')),
        *_base_.model.image_encoder[1:],
    ])
