# CIFAR-100-LT, imbalance ratio 100, as cifar10_lt_simclr_224.py.
# num_samples of the loss: 10847.
_base_ = './cifar10_lt_simclr_224.py'

data_preprocessor = dict(
    mean=[129.304, 124.070, 112.434], std=[68.170, 65.392, 70.418])
train_dataloader = dict(
    dataset=dict(type='mmrank.CIFAR100LT', data_root='data/cifar100/'))
