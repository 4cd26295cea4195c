# CyCLIP; all else as in its CLIP twin.
_base_ = './conv3-text_clip_cifar10-captions.py'

model = dict(head=dict(loss=dict(type='mmrank.CyCLIPLoss', tau=0.025)))
