# EUR-Lex in LIBSVM's multi-label form: data/eurlex/{train,test}.txt. The
# batch ratio is 1e-3: 2,601 of 82,265 pairs, 31 steps an epoch.
_base_ = './ml-1m.py'

batch_size = 2601
data_root = 'data/eurlex/'
train_file = 'train.txt'
test_file = 'test.txt'
train_dataloader = dict(
    batch_size=batch_size,
    sampler=dict(batch_size=batch_size),
    dataset=dict(
        data_root=data_root, ann_file=train_file, file_format='xmc'))
val_dataloader = dict(
    batch_size=4096,
    dataset=dict(
        data_root=data_root, ann_file=test_file, train_ann_file=train_file,
        file_format='xmc'))
test_dataloader = val_dataloader
