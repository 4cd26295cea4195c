# iNaturalist-2018 on Triplet loss.
_base_ = [
    '../_base_/retrieval_rivals_inaturalist.py',
    '../_base_/retrieval_losses/triplet.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
