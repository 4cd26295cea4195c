# TaU + SimCLR: the network computes the temperature of each view, from one more
# output of the projector; all else as in its SimCLR twin. Temperatures lie in
# (0, 1/scale) and start near half of that.
_base_ = './conv3_simclr_cifar10-lt.py'

model = dict(
    neck=dict(out_channels=129),
    loss=dict(_delete_=True, type='mmrank.TaUSimCLRLoss', scale=5.0))
