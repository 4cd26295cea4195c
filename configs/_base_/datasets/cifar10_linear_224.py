# CIFAR-10 at 224 x 224, labelled, for linear evaluation.
data_preprocessor = dict(
    type='mmpretrain.ClsDataPreprocessor',
    num_classes=10,
    mean=[125.307, 122.961, 113.8575],
    std=[51.5865, 50.847, 51.255],
    to_rgb=False)

dataset = dict(
    type='mmrank.CIFAR10LT',
    data_root='data/cifar10/',
    split='train',
    imbalance_ratio=1,
    pipeline=[
        dict(type='RandomResizedCrop', scale=224),
        dict(type='RandomFlip', prob=0.5),
        dict(type='PackInputs'),
    ])
train_dataloader = dict(
    batch_size=256,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='mmrank.one_size_collate'),
    dataset=dataset)
val_dataloader = dict(
    batch_size=256,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='mmrank.one_size_collate'),
    dataset=dict(
        dataset,
        split='test',
        pipeline=[dict(type='Resize', scale=224),
                  dict(type='PackInputs')]))
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
