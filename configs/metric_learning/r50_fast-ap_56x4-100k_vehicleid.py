# PKU VehicleID on FastAP.
_base_ = [
    '../_base_/retrieval_rivals_vehicleid.py',
    '../_base_/retrieval_losses/fast-ap.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
