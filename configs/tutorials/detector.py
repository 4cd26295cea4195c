# A small RetinaNet trained on graded AP-Loss. Make the data with
#   python tools/dataset_converters/make_shapes_coco.py --out data/shapes_small \
#       --num-train 160 --num-val 40 --num-test 0
_base_ = [
    'mmdet::_base_/default_runtime.py',
    '../_base_/models/retinanet_r18_fpn_small.py',
    '../_base_/datasets/shapes_coco.py',
]
data_root = 'data/shapes_small/'

# The loss: the head gathers the scores of all levels and images for it.
model = dict(
    bbox_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.RetinaHead',
        loss_cls=dict(_delete_=True, type='mmrank.GradedAPLoss')))

train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
val_evaluator = dict(ann_file=data_root + 'annotations/val.json')
test_dataloader = _base_.val_dataloader
test_dataloader.dataset.data_root = data_root
test_evaluator = val_evaluator

train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=6, val_interval=6)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05),
    clip_grad=dict(max_norm=10.0))
# Logs what the loss does. `loss_cls` falls as AP rises.
custom_hooks = [dict(type='mmrank.RankingMonitorHook')]
default_hooks = dict(logger=dict(interval=20))
randomness = dict(seed=0)
