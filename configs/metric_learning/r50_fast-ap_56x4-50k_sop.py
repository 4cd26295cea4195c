# Stanford Online Products on: FastAP.
_base_ = '../_base_/retrieval_rivals_sop.py'

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.PMLLoss',
            loss=dict(type='FastAPLoss', num_bins=10))))
