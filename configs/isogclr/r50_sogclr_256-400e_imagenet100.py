# SogCLR; all else as in its SimCLR twin.
_base_ = './r50_simclr_256-400e_imagenet100.py'

model = dict(
    loss=dict(
        _delete_=True,
        type='mmrank.SogCLRLoss',
        num_samples=126689,
        tau=0.3,
        beta0=0.9))
