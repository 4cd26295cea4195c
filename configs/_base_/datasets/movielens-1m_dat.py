# MovieLens-1M as GroupLens has it, ratings of 4 and 5 as positives:
#   python tools/dataset_converters/split_interactions.py ratings.dat \
#       data/movielens-1m --separator :: --min-rating 4
_base_ = './ml-1m.py'

batch_size = 16373
data_root = 'data/movielens-1m/'
train_file = 'train.dat'
test_file = 'test.dat'
train_dataloader = dict(
    batch_size=batch_size,
    sampler=dict(batch_size=batch_size),
    dataset=dict(
        data_root=data_root, ann_file=train_file, file_format='movielens'))
val_dataloader = dict(
    dataset=dict(
        data_root=data_root, ann_file=test_file, train_ann_file=train_file,
        file_format='movielens'))
test_dataloader = val_dataloader
