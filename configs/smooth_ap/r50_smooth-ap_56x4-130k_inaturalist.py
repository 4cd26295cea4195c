# iNaturalist-2018 on SmoothAP.
_base_ = [
    '../_base_/retrieval_rivals_inaturalist.py',
    '../_base_/retrieval_losses/smooth-ap.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
