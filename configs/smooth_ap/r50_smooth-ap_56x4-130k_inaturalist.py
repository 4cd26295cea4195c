# iNaturalist-2018 on SmoothAP, in the setting in which the SOPRC paper trains its
# baselines: model and data of SOPRC, and Adam; learning rate and schedule are
# those of its authors' code. The other baselines are rows of
# configs/soprc/baselines_inaturalist.yaml, which change the loss of this file.
_base_ = '../soprc/r50_soprc_56x4-130k_inaturalist.py'

model = dict(
    head=dict(
        _delete_=True,
        type='mmrank.RetrievalHead',
        num_classes=5115,
        loss=dict(type='mmrank.SmoothAPLoss', mode='per_class')))
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
