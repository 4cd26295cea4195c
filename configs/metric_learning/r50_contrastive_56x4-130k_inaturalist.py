# iNaturalist-2018 on Contrastive loss.
_base_ = [
    '../_base_/retrieval_rivals_inaturalist.py',
    '../_base_/retrieval_losses/contrastive.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
