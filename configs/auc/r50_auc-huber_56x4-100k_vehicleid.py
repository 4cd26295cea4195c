# PKU VehicleID on AUC by the one-sided Huber surrogate.
_base_ = [
    '../_base_/retrieval_rivals_vehicleid.py',
    '../_base_/retrieval_losses/auc-huber.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
# The authors train AUC with SGD, unlike the other rivals.
optim_wrapper = dict(
    optimizer=dict(
        _delete_=True,
        type='SGD',
        lr=0.001,
        momentum=0.9,
        nesterov=True,
        weight_decay=4e-4),
    # The code trains the linear embedding at twice the learning rate.
    paramwise_cfg=dict(custom_keys={'image_encoder.2': dict(lr_mult=2.0)}))
