# Stable AP on grocery products, ImageNet weights; see configs/metric_learning/README.md.
_base_ = '../_base_/retrieval_grocery.py'

model = dict(head=dict(loss=dict(type='mmrank.StableAPLoss')))
