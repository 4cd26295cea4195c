_base_ = [
    '../_base_/long_tail_grocery.py',
    '../_base_/long_tail_losses/soap.py',
]

# On raw scores, which learn faster than sigmoids; all training photographs.
model = dict(
    head=dict(
        loss=dict(_base_.loss, num_samples=2640, activation='none')))
