# Multi-similarity loss on grocery products, ImageNet weights; see configs/metric_learning/README.md.
_base_ = '../_base_/retrieval_grocery.py'

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.PMLLoss',
            loss=dict(
                type='MultiSimilarityLoss', alpha=2.0, beta=50.0, base=0.5),
            miner=dict(type='MultiSimilarityMiner', epsilon=0.1))))
