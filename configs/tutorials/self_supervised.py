# Features without labels: iSogCLR, a learnt temperature for every image. Data:
#   python tools/dataset_converters/make_glyphs.py data/glyphs \
#       --classes 60 --per-class 20
_base_ = 'mmpretrain::_base_/default_runtime.py'
load = [dict(type='LoadImageFromFile'), dict(type='PackInputs')]
data = dict(
    type='mmrank.ClassFolder', data_root='data/glyphs/', test_fraction=0.5,
    pipeline=load)
loader = dict(
    num_workers=0, persistent_workers=False,
    collate_fn=dict(type='default_collate'))

# The loader gives images, the model makes two random views of each.
data_preprocessor = dict(
    type='mmrank.TwoViewPreprocessor', mean=[25] * 3, std=[70] * 3)
model = dict(
    type='mmrank.TwoViewLearner',
    backbone=dict(type='mmrank.SmallConvNet', in_channels=3, channels=32),
    neck=dict(
        type='mmpretrain.NonLinearNeck', in_channels=32, hid_channels=64,
        out_channels=32, with_last_bn=False, norm_cfg=dict(type='BN1d')),
    loss=dict(type='mmrank.ISogCLRLoss', num_samples=600, rho=1.0,
              tau_init=0.2, tau0=0.02, eta=0.02))  # 600 training images
train_dataloader = dict(
    batch_size=100, sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(data, split='train'), **loader)
val_dataloader = dict(
    batch_size=200, sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(data, split='test', test_mode=True), **loader)
# Do images of one class find each other? They were not trained on.
val_evaluator = dict(type='mmrank.RetrievalMetric', recall_at=(1, 10))
train_cfg = dict(by_epoch=True, max_epochs=12, val_interval=6)
val_cfg = dict()
optim_wrapper = dict(optimizer=dict(type='AdamW', lr=2e-3))
custom_hooks = [dict(type='mmrank.SampleIndexHook'),
                dict(type='mmrank.RankingMonitorHook')]
randomness = dict(seed=0)
