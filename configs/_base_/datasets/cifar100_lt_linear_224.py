# CIFAR-100-LT at 224 x 224, labelled, for linear evaluation.
_base_ = 'cifar100_linear_224.py'

dataset = dict(imbalance_ratio=100)
train_dataloader = dict(dataset=dataset)
val_dataloader = dict(dataset=dataset)
test_dataloader = dict(dataset=dataset)
