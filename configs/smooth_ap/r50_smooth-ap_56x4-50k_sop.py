# Stanford Online Products on: SmoothAP.
_base_ = '../_base_/retrieval_rivals_sop.py'

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.SmoothAPLoss',
            mode='per_class',
            tau=0.01)))
