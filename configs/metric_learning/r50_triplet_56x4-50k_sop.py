# Stanford Online Products on: Triplet loss.
# Model, data and schedule of the SOPRC twin, and Adam, with which that paper
# trains the rivals. It does not give their learning rates; this one is a start.
_base_ = '../soprc/r50_soprc_56x4-50k_sop.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.PMLLoss',
            loss=dict(type='TripletMarginLoss', margin=0.1))))
optim_wrapper = dict(
    optimizer=dict(_delete_=True, type='Adam', lr=1e-5, weight_decay=4e-4))
custom_hooks = [
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
