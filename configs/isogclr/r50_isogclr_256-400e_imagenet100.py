# iSogCLR; all else as in the SimCLR config.
_base_ = './r50_simclr_256-400e_imagenet100.py'

model = dict(
    loss=dict(
        _delete_=True,
        type='mmrank.ISogCLRLoss',
        num_samples=126689,
        rho=0.2,
        tau_init=0.7,
        tau0=0.05,
        tau_max=1.0,
        eta=0.03,
        beta0=0.9,
        beta1=0.5,
        gradient_clip=3.0))
