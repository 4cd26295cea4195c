# Stanford Online Products on: AUC by the one-sided Huber surrogate.
_base_ = '../_base_/retrieval_rivals_sop.py'

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.AUCLoss',
            mode='per_class',
            surrogate='one_sided_huber',
            tau=0.1)))
