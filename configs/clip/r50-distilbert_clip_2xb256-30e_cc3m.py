# CLIP on CC3M in the settings of iSogCLR's paper. The bounds of the learned
# temperature are those of the authors' code. The other losses inherit from this.
_base_ = [
    'mmpretrain::_base_/default_runtime.py',
    '../_base_/models/r50-distilbert_clip_dual_encoder.py',
    '../_base_/datasets/cc3m_256.py',
    '../_base_/schedules/schedule_cc3m_30e.py',
]

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.CLIPLoss', tau=0.01, tau_min=0.001, tau_max=0.5)))

default_hooks = dict(
    logger=dict(interval=100),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook', interval=1, max_keep_ckpts=3))
custom_hooks = [
    dict(type='mmrank.SampleIndexHook'),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
randomness = dict(seed=0)
