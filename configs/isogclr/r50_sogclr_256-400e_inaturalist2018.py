# SogCLR; all else as in its SimCLR twin.
_base_ = './r50_simclr_256-400e_inaturalist2018.py'

model = dict(
    loss=dict(
        _delete_=True,
        type='mmrank.SogCLRLoss',
        num_samples=437513,
        tau=0.3,
        beta0=0.9))
