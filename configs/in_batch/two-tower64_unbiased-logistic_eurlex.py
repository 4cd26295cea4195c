# Unbiased loss (17), logistic, on EUR-Lex: the left tower is a linear layer
# on the sparse features of a text, the right one has a row a label. The
# numbers of features and labels are those of LIBSVM's file, whose features
# count from 1.
_base_ = [
    '../_base_/models/two_tower_64.py',
    '../_base_/datasets/ml-1m.py',
    '../_base_/schedules/schedule_two_tower.py',
]

# EUR-Lex in LIBSVM's multi-label form: data/eurlex/{train,test}.txt. The
# batch ratio is 1e-3: 2,601 of 82,265 pairs, 31 steps an epoch.
batch_size = 2601
data_root = 'data/eurlex/'
train_file = 'train.txt'
test_file = 'test.txt'
train_dataloader = dict(
    batch_size=batch_size,
    sampler=dict(batch_size=batch_size),
    dataset=dict(
        data_root=data_root, ann_file=train_file, file_format='xmc',
        one_based=True))
val_dataloader = dict(
    batch_size=4096,
    dataset=dict(
        data_root=data_root, ann_file=test_file, train_ann_file=train_file,
        file_format='xmc', one_based=True))
test_dataloader = val_dataloader

model = dict(
    left=dict(
        _delete_=True,
        type='mmrank.SparseLinearTower',
        num_features=186104,
        channels=64,
        sparse=True),
    right=dict(num_entities=3801, sparse=True))
