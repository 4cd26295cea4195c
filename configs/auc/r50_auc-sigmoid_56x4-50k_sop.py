# Stanford Online Products on: AUC by sigmoid.
_base_ = '../_base_/retrieval_rivals_sop.py'

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.AUCLoss',
            mode='per_class',
            surrogate='sigmoid',
            tau=0.1)))
