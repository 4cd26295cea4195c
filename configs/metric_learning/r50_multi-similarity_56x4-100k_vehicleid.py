# PKU VehicleID on Multi-similarity loss.
_base_ = [
    '../_base_/retrieval_rivals_vehicleid.py',
    '../_base_/retrieval_losses/multi-similarity.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
