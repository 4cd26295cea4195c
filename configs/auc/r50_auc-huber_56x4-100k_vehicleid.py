# PKU VehicleID on AUC by the one-sided Huber surrogate. For the other data sets
# see configs/soprc/baselines_*.yaml; a plan's option cannot name the key
# 'image_encoder.2', which has a dot.
_base_ = '../smooth_ap/r50_smooth-ap_56x4-100k_vehicleid.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.AUCLoss',
            mode='per_class',
            surrogate='one_sided_huber')))
# The authors train AUC with SGD, unlike the other baselines.
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
