# One class of CIFAR-10-LT against the rest at 16 x 16, for small experiments
# on a CPU. Make data/cifar10_16 with
#   python tools/dataset_converters/cifar10.py cifar10_jpg data/cifar10_16 --size 16
# of a folder of train/<class>/ and test/<class>/.
_base_ = './cifar10_binary_lt_32.py'

train_pipeline = [
    dict(type='RandomCrop', crop_size=16, padding=2),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackInputs')
]
loader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(data_root='data/cifar10_16/'))

train_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(data_root='data/cifar10_16/', pipeline=train_pipeline))
val_dataloader = loader
test_dataloader = loader
del loader
