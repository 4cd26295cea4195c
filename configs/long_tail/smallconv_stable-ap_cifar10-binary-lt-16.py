_base_ = [
    '../_base_/models/small_conv_one_vs_rest.py',
    '../_base_/datasets/cifar10_binary_lt_16_plain.py',
    '../_base_/schedules/schedule_long_tail_small.py',
    '../_base_/long_tail_losses/stable_ap.py',
]

# From random weights raw scores learn faster than sigmoids; the order, and so
# the metric, is the same.
model = dict(
    head=dict(
        loss=dict(
            _base_.loss,
            activation='none',
            tau=1.0,
            mean_mode='plain',
            score_range=(-5.0, 5.0),
            score_penalty=0.001)))
