# Unbiased loss (17), logistic, on ratings.dat itself: 6,038 users have a
# rating of 4 or 5, and 3,533 films. A sparse gradient of the tables.
_base_ = [
    '../_base_/models/two_tower_64.py',
    '../_base_/datasets/ml-1m.py',
    '../_base_/schedules/schedule_two_tower.py',
]

# MovieLens-1M as GroupLens has it, ratings of 4 and 5 as positives:
#   python tools/dataset_converters/split_interactions.py ratings.dat \
#       data/movielens-1m --separator :: --min-rating 4
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

model = dict(left=dict(num_entities=6038), right=dict(num_entities=3533))
