# Contrastive loss with a cross-batch memory of about one training set, on grocery
# products, ImageNet weights; see configs/metric_learning/README.md.
_base_ = './efficientnet-lite0_contrastive_grocery.py'

model = dict(head=dict(memory=dict(size=2688, dim=256, start_iter=20)))
