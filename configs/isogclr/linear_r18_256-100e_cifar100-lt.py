# Linear evaluation on CIFAR-100-LT of the backbone of any of the three methods.
_base_ = [
    '../_base_/datasets/cifar100_linear_224.py',
    '../_base_/models/r18_linear_classifier.py',
    '../_base_/schedules/schedule_linear_100e.py',
    'mmpretrain::_base_/default_runtime.py',
]

# CIFAR-100-LT at 224 x 224, labelled, for linear evaluation.
dataset = dict(imbalance_ratio=100)
train_dataloader = dict(dataset=dataset)
val_dataloader = dict(dataset=dataset)
test_dataloader = dict(dataset=dataset)

model = dict(head=dict(num_classes=100))
default_hooks = dict(checkpoint=dict(interval=10, max_keep_ckpts=1))
randomness = dict(seed=0)
