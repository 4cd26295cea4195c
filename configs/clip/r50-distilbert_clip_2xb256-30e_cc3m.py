# CLIP on CC3M in the settings of iSogCLR's paper. The bounds of the learned
# temperature are those of the authors' code. Other losses are rows of
# tools/research/papers/isogclr/captions.yaml.
_base_ = [
    'mmpretrain::_base_/default_runtime.py',
    '../_base_/datasets/cc3m_256.py',
]

# ResNet-50 of ImageNet and DistilBERT, each with a linear layer to 256 channels.
# Needs `pip install transformers`, and a network or cached weights.
model = dict(
    type='mmrank.ImageTextDualEncoder',
    image_encoder=[
        dict(
            type='mmpretrain.ResNet',
            depth=50,
            init_cfg=dict(
                type='Pretrained', checkpoint='torchvision://resnet50')),
        dict(type='mmpretrain.GlobalAveragePooling'),
    ],
    image_channels=2048,
    text_encoder=dict(
        type='mmrank.HuggingFaceTextEncoder',
        name_or_path='distilbert-base-uncased',
        max_length=30),
    embed_channels=256,
    head=dict(
        type='mmrank.ImageTextContrastHead',
        loss=dict(
            type='mmrank.CLIPLoss', tau=0.01, tau_min=0.001, tau_max=0.5)))

# iSogCLR's settings for CC3M: AdamW, 1,000 iterations of warm-up, cosine, 30
# epochs, batches of 512.
train_cfg = dict(by_epoch=True, max_epochs=30, val_interval=1)
val_cfg = dict()
test_cfg = dict()

optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=2e-4, weight_decay=0.02),
    paramwise_cfg=dict(custom_keys=dict(log_tau=dict(decay_mult=0.0))))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.05, by_epoch=False, begin=0,
        end=1000),
    dict(
        type='CosineAnnealingLR', by_epoch=True, begin=0, T_max=30, end=30,
        eta_min=1e-6, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=512)

default_hooks = dict(
    logger=dict(interval=100),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook', interval=1, max_keep_ckpts=3))
custom_hooks = [
    dict(type='mmrank.SampleIndexHook'),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
    # CIFAR-10, CIFAR-100, ImageNet-1K and COCO; without one of them:
    # --cfg-options custom_hooks.3.tests.imagenet=None
    dict(type='mmrank.FurtherTestsHook', tests=_base_.further_tests),
]
randomness = dict(seed=0)
