_base_ = [
    '../_base_/models/resnet18_cifar_one_vs_rest.py',
    '../_base_/datasets/cifar10_binary_lt_32.py',
    '../_base_/schedules/schedule_long_tail_exact.py',
]
