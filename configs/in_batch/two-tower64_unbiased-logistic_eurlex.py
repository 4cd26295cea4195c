# Unbiased loss (17), logistic, on EUR-Lex: the left tower is a linear layer
# on the sparse features of a text, the right one has a row a label. The
# numbers of features and labels are those of LIBSVM's file, whose features
# count from 1.
_base_ = [
    '../_base_/models/two_tower_64.py',
    '../_base_/datasets/eurlex_xmc.py',
    '../_base_/schedules/schedule_two_tower.py',
]

model = dict(
    left=dict(
        _delete_=True,
        type='mmrank.SparseLinearTower',
        num_features=186104,
        channels=64,
        sparse=True),
    right=dict(num_entities=3801, sparse=True))
one_based = dict(one_based=True)
train_dataloader = dict(dataset=one_based)
val_dataloader = dict(dataset=one_based)
test_dataloader = val_dataloader
