# A multi-label classifier with rare classes. Make the data with
#   python tools/dataset_converters/make_shapes_coco.py --out data/shapes_64 \
#       --num-train 600 --num-val 200 --num-test 0 --image-size 64 64 \
#       --object-size 16 40 --mean-objects 2 --num-classes 4
# and, for PART in train and val, the table of labels with
#   python tools/dataset_converters/coco_to_labels.py \
#       data/shapes_64/annotations/PART.json data/shapes_64/PART.csv
_base_ = 'mmpretrain::_base_/default_runtime.py'
data = dict(type='mmrank.MultiLabelCSV', data_root='data/shapes_64/')
pipeline = [dict(type='LoadImageFromFile'), dict(type='PackInputs')]
loader = dict(num_workers=0, persistent_workers=False,
              collate_fn=dict(type='mmrank.one_size_collate'))
data_preprocessor = dict(type='mmpretrain.ClsDataPreprocessor',
                         mean=[127.5] * 3, std=[60] * 3)
model = dict(
    type='mmpretrain.ImageClassifier',
    backbone=dict(type='mmrank.SmallConvNet', in_channels=3, channels=32),
    neck=dict(type='mmpretrain.GlobalAveragePooling'),
    head=dict(type='mmrank.OneVsRestHead', num_classes=4, in_channels=32,
              loss=dict(type='mmrank.StableAPLoss', mode='per_class')))
train_dataloader = dict(
    batch_size=64, sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(data, ann_file='train.csv', data_prefix='train/',
                 pipeline=pipeline), **loader)
val_dataloader = dict(
    batch_size=100, sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(data, ann_file='val.csv', data_prefix='val/',
                 pipeline=pipeline, test_mode=True), **loader)
val_evaluator = dict(type='mmrank.AveragePrecisionMetric')
train_cfg = dict(by_epoch=True, max_epochs=6, val_interval=6)
val_cfg = dict()
optim_wrapper = dict(optimizer=dict(type='AdamW', lr=3e-3))
custom_hooks = [dict(type='mmrank.LabelCheckHook'),
                dict(type='mmrank.RankingMonitorHook')]
randomness = dict(seed=0)
