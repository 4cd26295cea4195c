# Two towers trained without in-batch bias. Make the data with
#   python tools/dataset_converters/make_interactions.py data/interactions
# 200 users and 100 items; train.csv and test.csv hold lines `user,item`.
data_root = 'data/interactions/'
batch_size = 256  # of the loader and of the sampler

model = dict(
    type='mmrank.TwoTower',
    left=dict(type='mmrank.EmbeddingTower', num_entities=200, channels=8),
    right=dict(type='mmrank.EmbeddingTower', num_entities=100, channels=8),
    loss=dict(
        type='mmrank.InBatchLoss', mode='unbiased', pointwise='logistic'),
    top_k=25)
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=0,
    collate_fn=dict(type='mmrank.pair_collate'),
    sampler=dict(type='mmrank.InBatchPairSampler', batch_size=batch_size),
    dataset=dict(
        type='mmrank.InteractionDataset', data_root=data_root,
        ann_file='train.csv'))
val_dataloader = dict(
    batch_size=200,
    num_workers=0,
    collate_fn=dict(type='mmrank.pair_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='mmrank.TopKDataset', data_root=data_root, ann_file='test.csv',
        train_ann_file='train.csv'))
val_evaluator = dict(type='mmrank.TopKMetric', k=(1, 5, 25))
test_dataloader, test_evaluator = val_dataloader, val_evaluator
train_cfg = dict(by_epoch=True, max_epochs=20, val_interval=5)
val_cfg = test_cfg = dict()
optim_wrapper = dict(optimizer=dict(type='Adagrad', lr=0.1))
# Gives the loss the number of training pairs of each user and item.
custom_hooks = [dict(type='mmrank.PairCountsHook')]
default_scope = 'mmengine'
default_hooks = dict(logger=dict(type='LoggerHook', interval=5))
randomness = dict(seed=0)
