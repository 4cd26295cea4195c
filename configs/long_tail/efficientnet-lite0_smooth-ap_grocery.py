_base_ = [
    '../_base_/long_tail_grocery.py',
    '../_base_/long_tail_losses/smooth_ap.py',
]

# On raw scores, which learn faster than sigmoids.
model = dict(head=dict(loss=dict(_base_.loss, activation='none', tau=0.3)))
