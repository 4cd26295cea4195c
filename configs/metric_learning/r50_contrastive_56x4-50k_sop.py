# Stanford Online Products on Contrastive loss.
_base_ = [
    '../_base_/retrieval_rivals_sop.py',
    '../_base_/retrieval_losses/contrastive.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=False, milestones=[20000, 40000],
        gamma=0.3)
]
