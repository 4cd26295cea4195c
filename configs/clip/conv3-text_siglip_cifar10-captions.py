# SigLIP from the paper's temperature and bias; all else as in its CLIP twin.
_base_ = './conv3-text_clip_cifar10-captions.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True, type='mmrank.SigLIPLoss', tau=0.1, bias=-10.0)))
