# The last stages of EfficientNet-Lite0 on grocery photographs themselves, for
# tools/dataset_converters/cache_features.py; with the schedule of another config
# it trains what the cached configs train, on new random views at each visit.
_base_ = [
    'mmpretrain::_base_/default_runtime.py',
    '../_base_/models/efficientnet-lite0_retriever.py',
    '../_base_/datasets/grocery_128_pk.py',
]

# EfficientNet-Lite0 from ImageNet weights, of which the last stages are trained,
# with frozen batch norm and a linear embedding.
model = dict(
    image_encoder=[
        dict(
            type='mmrank.TIMMStages',
            model_name='tf_efficientnet_lite0',
            frozen_stages=6,
            init_cfg=dict(
                type='Pretrained',
                checkpoint='mmrank://efficientnet_lite0')),
        *_base_.model.image_encoder[1:],
    ])

val_dataloader = None
val_cfg = None
val_evaluator = None
test_cfg = dict()
