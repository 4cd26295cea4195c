# CIFAR-100-LT at 224 x 224, labelled, for linear evaluation.
data_preprocessor = dict(
    type='mmpretrain.ClsDataPreprocessor',
    num_classes=100,
    mean=[129.304, 124.070, 112.434],
    std=[68.170, 65.392, 70.418],
    to_rgb=False)

dataset = dict(
    type='mmrank.CIFAR100LT',
    data_root='data/cifar100/',
    split='train',
    imbalance_ratio=100,
    pipeline=[
        dict(type='RandomResizedCrop', scale=224),
        dict(type='RandomFlip', prob=0.5),
        dict(type='PackInputs'),
    ])
train_dataloader = dict(
    batch_size=256,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dataset)
val_dataloader = dict(
    batch_size=256,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        dataset,
        split='test',
        pipeline=[dict(type='Resize', scale=224),
                  dict(type='PackInputs')]))
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
