# FastCLIP-v1 of grocery_losses.yaml, whose v2 and v3 inherit from this file: SogCLR with an inner
# rate that falls from 1 to 0.2 within half of the iterations.
_base_ = './lite0-text_clip_grocery.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True, type='mmrank.SogCLRLoss', num_samples=5280,
            bimodal=True, tau=0.2, beta0=0.2)))
custom_hooks = [
    *_base_.custom_hooks,
    dict(type='mmrank.CosineBeta0Hook', decay=150, by_epoch=False),
]
