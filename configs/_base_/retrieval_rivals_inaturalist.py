# iNaturalist-2018 for the losses that SOPRC is compared with. Model and data of
# the SOPRC twin, and Adam, with which that paper trains the rivals; learning
# rate and schedule are those of its authors' code. The loss is set by the
# inheriting config.
_base_ = '../soprc/r50_soprc_56x4-130k_inaturalist.py'

model = dict(
    head=dict(_delete_=True, type='mmrank.RetrievalHead', num_classes=5115))
optim_wrapper = dict(
    optimizer=dict(_delete_=True, type='Adam', lr=1e-5, weight_decay=4e-4))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=False, milestones=[80000, 110000],
        gamma=0.3)
]
# Without the class counts, which only SOPRC requires.
custom_hooks = [
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
