# retrieval_runtime.py for mean_mode='exact', which scores each batch again
# under the previous weights.
_base_ = './retrieval_runtime.py'

custom_hooks = [
    *_base_.custom_hooks,
    dict(type='mmrank.PreviousWeightsHook'),
]
