# An image search trained on stable AP. Make the data with
#   python tools/dataset_converters/make_glyphs.py data/glyphs \
#       --classes 60 --per-class 20
# 60 made-up characters: 27 to train on, 3 to validate, 30 others to test.
_base_ = [
    'mmpretrain::_base_/default_runtime.py',
    '../_base_/datasets/class_folder_glyphs.py',
]
model = dict(
    type='mmrank.EmbeddingRetriever',
    image_encoder=[
        dict(type='mmrank.SmallConvNet', channels=32),
        dict(type='mmpretrain.GlobalAveragePooling'),
        dict(type='mmpretrain.LinearNeck', in_channels=32, out_channels=64,
             norm_cfg=None, act_cfg=None)],
    head=dict(
        type='mmrank.RetrievalHead',
        num_classes=27,  # of the training set
        loss=dict(type='mmrank.StableAPLoss', mode='per_class')))

train_cfg = dict(type='IterBasedTrainLoop', max_iters=100, val_interval=50)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=3e-3, weight_decay=4e-4))
custom_hooks = [dict(type='mmrank.RankingMonitorHook')]
default_hooks = dict(
    logger=dict(interval=20, log_metric_by_epoch=False),
    checkpoint=dict(by_epoch=False, interval=100))
log_processor = dict(by_epoch=False)
randomness = dict(seed=0)
