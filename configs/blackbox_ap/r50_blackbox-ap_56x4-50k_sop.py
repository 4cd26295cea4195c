# Stanford Online Products on BlackBox AP.
_base_ = [
    '../_base_/retrieval_rivals_sop.py',
    '../_base_/retrieval_losses/blackbox-ap.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
