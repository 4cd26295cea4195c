_base_ = [
    '../_base_/long_tail_grocery.py',
    '../_base_/long_tail_losses/focal.py',
]
model = dict(head=dict(loss={{_base_.loss}}))
