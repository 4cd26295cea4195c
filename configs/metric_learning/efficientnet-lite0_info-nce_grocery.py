# InfoNCE (NT-Xent of all pairs of a class) on grocery products, ImageNet weights; see configs/metric_learning/README.md.
_base_ = '../_base_/retrieval_grocery.py'

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.PMLLoss',
            loss=dict(type='NTXentLoss', temperature=0.07))))
