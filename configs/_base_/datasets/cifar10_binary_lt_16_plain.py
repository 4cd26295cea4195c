# cifar10_binary_lt_16.py for trainings of two passes: nothing is overfitted
# then, and augmentation would take as long as a small network.
_base_ = './cifar10_binary_lt_16.py'

train_dataloader = dict(
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(pipeline=[dict(type='PackInputs')]))
