# iSogCLR; all else as in the SimCLR config.
_base_ = './r18_simclr_128-400e_cifar100-lt.py'

model = dict(
    loss=dict(
        _delete_=True,
        type='mmrank.ISogCLRLoss',
        num_samples=10847,
        rho=0.4,
        tau_init=0.7,
        tau0=0.05,
        tau_max=1.0,
        eta=0.03,
        beta0=0.9,
        beta1=0.5,
        gradient_clip=3.0))
