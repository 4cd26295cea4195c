_base_ = [
    '../_base_/models/resnet18_cifar_one_vs_rest.py',
    '../_base_/datasets/cifar100_binary_lt_32.py',
    '../_base_/schedules/schedule_long_tail_cifar.py',
    '../_base_/long_tail_losses/stable_ap.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
custom_hooks = [
    *_base_.custom_hooks,
    # mean_mode='exact' scores each batch again under the previous weights.
    dict(type='mmrank.PreviousWeightsHook'),
]
