# Some classes of CIFAR-100-LT against the rest, as cifar10_binary_lt_32.py;
# the positive ones are the superclass of fruit and vegetables.
_base_ = './cifar10_binary_lt_32.py'

data_preprocessor = dict(
    mean=[129.304, 124.070, 112.434], std=[68.170, 65.392, 70.418])
dataset = dict(
    type='mmrank.CIFAR100BinaryLT',
    data_root='data/cifar100/',
    positive=['apple', 'mushroom', 'orange', 'pear', 'sweet_pepper'])

train_dataloader = dict(dataset=dataset)
val_dataloader = dict(dataset=dataset)
test_dataloader = dict(dataset=dataset)
del dataset
