# Stanford Online Products on Multi-similarity loss.
_base_ = [
    '../_base_/retrieval_rivals_sop.py',
    '../_base_/retrieval_losses/multi-similarity.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=False, milestones=[20000, 40000],
        gamma=0.3)
]
