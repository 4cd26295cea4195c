# Stanford Online Products on: Triplet loss.
_base_ = '../_base_/retrieval_rivals_sop.py'

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.PMLLoss',
            loss=dict(type='TripletMarginLoss', margin=0.1))))
