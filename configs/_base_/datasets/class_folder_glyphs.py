# Made-up glyphs, where no real data set can be had. Make data/glyphs with
#   python tools/dataset_converters/make_glyphs.py data/glyphs \
#       --classes 60 --per-class 20
# 60 classes: 27 to train on, 3 for validation, 30 others to test.
_base_ = './omniglot_28_pk.py'

dataset = dict(
    _delete_=True,
    type='mmrank.ClassFolder',
    data_root='data/glyphs/',
    test_fraction=0.5,
    val_fraction=0.1)

train_dataloader = dict(
    batch_size=64,
    sampler=dict(batch_size=64),
    dataset=dict(
        **dataset, split='train', pipeline={{_base_.train_pipeline}}))
val_dataloader = dict(
    dataset=dict(
        **dataset,
        split='val',
        test_mode=True,
        pipeline={{_base_.test_pipeline}}))
test_dataloader = dict(
    dataset=dict(
        **dataset,
        split='test',
        test_mode=True,
        pipeline={{_base_.test_pipeline}}))
del dataset
