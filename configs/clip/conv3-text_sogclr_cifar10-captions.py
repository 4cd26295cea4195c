# SogCLR with one fixed temperature; all else as in its CLIP twin. num_samples is
# the number of pairs.
_base_ = './conv3-text_clip_cifar10-captions.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.SogCLRLoss',
            num_samples=8168,
            bimodal=True,
            tau=0.2,
            beta0=0.8)))
