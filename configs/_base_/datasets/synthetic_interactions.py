# Made-up interactions:
# python tools/dataset_converters/make_interactions.py data/interactions
_base_ = './ml-1m.py'

data_root = 'data/interactions/'
train_file = 'train.csv'
test_file = 'test.csv'
batch_size = 256
train_dataloader = dict(
    batch_size=batch_size,
    sampler=dict(batch_size=batch_size),
    dataset=dict(data_root=data_root, ann_file=train_file))
val_dataloader = dict(
    dataset=dict(
        data_root=data_root, ann_file=test_file, train_ann_file=train_file))
test_dataloader = val_dataloader
