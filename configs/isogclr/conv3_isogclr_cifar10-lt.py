# iSogCLR; all else as in the SimCLR config. A sample is visited 12 times, so the
# temperatures start near where they end and take longer steps than in 400 epochs.
_base_ = './conv3_simclr_cifar10-lt.py'

model = dict(
    loss=dict(
        _delete_=True,
        type='mmrank.ISogCLRLoss',
        num_samples=_base_.num_samples,
        rho=2.4,
        tau_init=0.1,
        tau0=0.02,
        eta=0.02,
        beta0=0.9))
