# MovieLens-1M as user,item pairs: data/ml1m/{train,test}.csv.gz. The batch
# ratio |Ohat|^2 / |O|^2 is 1e-3: 26,652 of 842,799 pairs, 31 steps an epoch.
batch_size = 26652
data_root = 'data/ml1m/'
train_file = 'train.csv.gz'
test_file = 'test.csv.gz'

train_dataloader = dict(
    # Of one rank; the sampler's counts over all.
    batch_size=batch_size,
    num_workers=0,
    collate_fn=dict(type='mmrank.pair_collate'),
    sampler=dict(
        type='mmrank.InBatchPairSampler', batch_size=batch_size, seed=0),
    dataset=dict(
        type='mmrank.InteractionDataset',
        data_root=data_root,
        ann_file=train_file))
val_dataloader = dict(
    batch_size=6018,
    num_workers=0,
    collate_fn=dict(type='mmrank.pair_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='mmrank.TopKDataset',
        data_root=data_root,
        ann_file=test_file,
        train_ann_file=train_file))
test_dataloader = val_dataloader
val_evaluator = dict(type='mmrank.TopKMetric', k=(1, 5, 25))
test_evaluator = val_evaluator
