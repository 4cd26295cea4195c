# Stanford Online Products on: BlackBox AP.
_base_ = '../_base_/retrieval_rivals_sop.py'

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.BlackBoxAPLoss',
            mode='per_class',
            lam=4.0,
            margin=0.02)))
