# PKU VehicleID on Contrastive loss.
_base_ = [
    '../_base_/retrieval_rivals_vehicleid.py',
    '../_base_/retrieval_losses/contrastive.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
