# SogCLR with one fixed temperature; all else as in its CLIP twin. num_samples is
# the number of pairs.
_base_ = './lite0-text_clip_grocery.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.SogCLRLoss',
            num_samples=5280,
            bimodal=True,
            tau=0.1,
            beta0=0.8)))
