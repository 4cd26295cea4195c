# CIFAR-100 as cifar10_simclr_224.py. num_samples of the loss: 50000; with
# imbalance_ratio=100 10847.
_base_ = './cifar10_simclr_224.py'

data_preprocessor = dict(
    mean=[129.304, 124.070, 112.434], std=[68.170, 65.392, 70.418])

images = dict(
    type='mmrank.CIFAR100LT',
    data_root='data/cifar100/',
    split='train',
    imbalance_ratio=1)
labelled = dict(images, pipeline=_base_.test_pipeline)
train_dataloader = dict(dataset=images)
test_dataloader = dict(
    dataset=dict(datasets=[labelled, dict(labelled, split='test')]))
val_dataloader = dict(
    dataset=dict(datasets=[
        dict(labelled, val_per_class=50),
        dict(labelled, split='val', val_per_class=50),
    ]))
