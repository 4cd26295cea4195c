# CIFAR-10-LT shrunk to 16 x 16 for small experiments on a CPU. Make
# data/cifar10_16 with
#   python tools/dataset_converters/cifar10.py cifar10_jpg.zip data/cifar10_16 \
#       --size 16
# Weaker crops and no blur: at 16 pixels little would be left. num_samples of
# the loss: 12406.
_base_ = './cifar10_lt_simclr_224.py'

view_pipeline = [
    dict(type='RandomResizedCrop', scale=16, crop_ratio_range=(0.2, 1.0)),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomApply',
        transforms=[
            dict(
                type='ColorJitter',
                brightness=0.4,
                contrast=0.4,
                saturation=0.4,
                hue=0.1)
        ],
        prob=0.8),
    dict(
        type='RandomGrayscale',
        prob=0.2,
        keep_channels=True,
        channel_weights=(0.2989, 0.587, 0.114)),
]
train_pipeline = [
    dict(type='MultiView', num_views=2, transforms=[view_pipeline]),
    dict(type='PackInputs')
]
train_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(data_root='data/cifar10_16/', pipeline=train_pipeline))
