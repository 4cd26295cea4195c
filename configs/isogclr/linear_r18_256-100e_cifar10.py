# Linear evaluation on CIFAR-10 of the backbone of any checkpoint. mmrank test on the
# config of a training does the same for its own data.
_base_ = [
    '../_base_/datasets/cifar10_linear_224.py',
    '../_base_/models/r18_linear_classifier.py',
    '../_base_/schedules/schedule_linear_100e.py',
    'mmpretrain::_base_/default_runtime.py',
]

default_hooks = dict(checkpoint=dict(interval=10, max_keep_ckpts=1))
randomness = dict(seed=0)
