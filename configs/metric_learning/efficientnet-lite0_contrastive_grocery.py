# Contrastive loss on grocery products, ImageNet weights; see configs/metric_learning/README.md.
_base_ = '../_base_/retrieval_grocery.py'

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.PMLLoss',
            loss=dict(type='ContrastiveLoss', pos_margin=0.0, neg_margin=0.5))))
