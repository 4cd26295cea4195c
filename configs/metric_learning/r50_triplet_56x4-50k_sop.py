# Stanford Online Products on Triplet loss.
_base_ = [
    '../_base_/retrieval_rivals_sop.py',
    '../_base_/retrieval_losses/triplet.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
