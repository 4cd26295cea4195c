# SOPRC on grocery products, ImageNet weights; see
# configs/metric_learning/README.md.
_base_ = '../_base_/retrieval_grocery.py'

model = dict(
    head=dict(
        num_classes=40,
        loss=dict(
            type='mmrank.SOPRCLoss',
            mode='per_class',
            prior='counts',
            max_prior=0.1,
            tau1=0.1,
            tau2=0.02,
            vector_length=20,
            momentum=0.1)))
custom_hooks = [
    dict(type='mmrank.ClassCountsHook'),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
