_base_ = [
    '../_base_/long_tail_grocery.py',
    '../_base_/long_tail_losses/soprc.py',
]

# On raw scores, which learn faster than sigmoids. A prior of a half trains better
# than the share of positives in the data, 0.01, at which the risk is flat.
model = dict(
    head=dict(
        loss=dict(
            _base_.loss,
            prior=0.5,
            activation='none',
            tau1=1.0,
            tau2=0.05,
            score_range=(-5.0, 5.0))))
