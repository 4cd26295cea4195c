# iSogCLR; all else as in its SimCLR twin. A sample is visited 6 times, so the
# temperatures need longer steps than in 400 epochs.
_base_ = './conv3_simclr_cifar10-lt.py'

model = dict(
    loss=dict(
        _delete_=True,
        type='mmrank.ISogCLRLoss',
        num_samples=_base_.num_samples,
        rho=0.3,
        tau_init=0.5,
        tau0=0.05,
        eta=0.2,
        beta0=0.9))
