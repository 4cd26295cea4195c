# CyCLIP; all else as in its CLIP twin.
_base_ = './lite0-text_clip_grocery.py'

model = dict(head=dict(loss=dict(type='mmrank.CyCLIPLoss', tau=0.1)))
