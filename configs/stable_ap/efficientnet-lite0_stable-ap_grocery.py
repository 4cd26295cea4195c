# Stable AP on grocery products, ImageNet weights; see configs/metric_learning/README.md.
_base_ = '../_base_/retrieval_grocery.py'

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.StableAPLoss',
            mode='per_class',
            mean_scope='global',
            tau=0.1,
            score_range=(-1.0, 1.0),
            score_penalty=0.0)))
