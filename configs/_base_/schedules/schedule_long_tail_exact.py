# schedule_long_tail_cifar.py for mean_mode='exact', which scores each batch
# again under the previous weights.
_base_ = './schedule_long_tail_cifar.py'

custom_hooks = [
    *_base_.custom_hooks,
    dict(type='mmrank.PreviousWeightsHook'),
]
