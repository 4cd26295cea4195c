_base_ = [
    '../_base_/models/resnet50_one_vs_rest.py',
    '../_base_/datasets/chest_xray14_224.py',
    '../_base_/schedules/schedule_long_tail_chest.py',
]

custom_hooks = [
    *_base_.custom_hooks,
    # mean_mode='exact' scores each batch again under the previous weights.
    dict(type='mmrank.PreviousWeightsHook'),
]
