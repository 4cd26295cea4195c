# Linear evaluation on iNaturalist-2018 of the backbone of any of the three methods.
_base_ = [
    '../_base_/datasets/inaturalist2018_linear_224.py',
    '../_base_/models/r50_linear_classifier.py',
    '../_base_/schedules/schedule_linear_100e.py',
    'mmpretrain::_base_/default_runtime.py',
]

model = dict(head=dict(num_classes=8142))
default_hooks = dict(checkpoint=dict(interval=10, max_keep_ckpts=1))
randomness = dict(seed=0)
