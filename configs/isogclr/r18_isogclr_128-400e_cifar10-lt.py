# iSogCLR; all else as in its SimCLR twin.
_base_ = './r18_simclr_128-400e_cifar10-lt.py'

model = dict(
    loss=dict(
        _delete_=True,
        type='mmrank.ISogCLRLoss',
        num_samples=12406,
        rho=0.4,
        tau_init=0.7,
        tau0=0.05,
        eta=0.01,
        beta0=0.9))
custom_hooks = [
    *_base_.custom_hooks,
    dict(type='mmrank.TemperatureHook', interval=10),
]
