# PKU VehicleID on Triplet loss.
_base_ = [
    '../_base_/retrieval_rivals_vehicleid.py',
    '../_base_/retrieval_losses/triplet.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
