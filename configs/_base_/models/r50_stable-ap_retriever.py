# ResNet-50 on stable AP as in the paper's section 7.1, which has no public code;
# configs/stable_ap/README.md compares each value with the text. num_classes is
# set by the inheriting config, which also requires mmrank.PreviousWeightsHook.
_base_ = './r50_retriever.py'

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
        loss=dict(
            type='mmrank.StableAPLoss',
            mode='per_class',
            mean_scope='global',
            reduction='sum',
            mean_mode='exact',
            momentum=0.01,
            a=0.1,
            t=2.0)))
