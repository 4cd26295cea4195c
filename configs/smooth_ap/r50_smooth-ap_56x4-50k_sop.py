# Stanford Online Products on SmoothAP.
_base_ = [
    '../_base_/retrieval_rivals_sop.py',
    '../_base_/retrieval_losses/smooth-ap.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
