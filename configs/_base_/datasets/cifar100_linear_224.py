# CIFAR-100 at 224 x 224, labelled, for linear evaluation.
_base_ = 'cifar10_linear_224.py'

data_preprocessor = dict(
    num_classes=100,
    mean=[129.304, 124.070, 112.434],
    std=[68.170, 65.392, 70.418])
dataset = dict(type='mmrank.CIFAR100LT', data_root='data/cifar100/')
train_dataloader = dict(dataset=dataset)
val_dataloader = dict(dataset=dataset)
test_dataloader = dict(dataset=dataset)
