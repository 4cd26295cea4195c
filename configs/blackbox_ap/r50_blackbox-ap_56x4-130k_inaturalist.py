# iNaturalist-2018 on BlackBox AP.
_base_ = [
    '../_base_/retrieval_rivals_inaturalist.py',
    '../_base_/retrieval_losses/blackbox-ap.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
