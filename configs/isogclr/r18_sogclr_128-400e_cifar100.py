# SogCLR; all else as in its SimCLR twin.
_base_ = './r18_simclr_128-400e_cifar100.py'

model = dict(
    loss=dict(
        _delete_=True,
        type='mmrank.SogCLRLoss',
        num_samples=50000,
        tau=0.3,
        beta0=0.9))
