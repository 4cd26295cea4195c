# Stanford Online Products on: List-wise AP (DIR).
_base_ = '../_base_/retrieval_rivals_sop.py'

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.ListwiseAPLoss',
            mode='per_class',
            num_bins=20)))
