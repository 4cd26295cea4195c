# CyCLIP; all else as in its CLIP twin.
_base_ = './r50-distilbert_clip_2xb256-30e_cc3m.py'

model = dict(head=dict(loss=dict(type='mmrank.CyCLIPLoss')))
