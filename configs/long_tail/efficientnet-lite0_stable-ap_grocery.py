_base_ = [
    '../_base_/long_tail_grocery.py',
    '../_base_/long_tail_losses/stable_ap.py',
]

# On raw scores, which learn faster than sigmoids.
model = dict(
    head=dict(
        loss=dict(
            _base_.loss,
            activation='none',
            tau=1.0,
            mean_mode='plain',
            score_range=(-5.0, 5.0),
            score_penalty=0.001)))
