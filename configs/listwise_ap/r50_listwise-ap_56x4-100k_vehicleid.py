# PKU VehicleID on list-wise AP (DIR).
_base_ = [
    '../_base_/retrieval_rivals_vehicleid.py',
    '../_base_/retrieval_losses/listwise-ap.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
