# SogCLR; all else as in its SimCLR twin.
_base_ = './conv3_simclr_cifar10-lt.py'

model = dict(
    loss=dict(
        _delete_=True,
        type='mmrank.SogCLRLoss',
        num_samples=_base_.num_samples,
        tau=0.06,
        beta0=0.9))
