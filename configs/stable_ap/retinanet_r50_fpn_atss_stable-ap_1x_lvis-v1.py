# RetinaNet on LVIS v1 with stable AP, one ranking per class: a class counts
# the same however rare it is, as in the metric. One square anchor per location
# and ATSS assignment on mmdet's LVIS v1 base, boxes only. Classes that an image
# is not annotated for are ignored, by mmdet's FocalLoss in its place, too.
# Needs `pip install lvis` to test. We have not trained it.
_base_ = [
    'mmdet::_base_/models/retinanet_r50_fpn.py',
    'mmdet::_base_/datasets/lvis_v1_instance.py',
    'mmdet::_base_/schedules/schedule_1x.py',
    'mmdet::_base_/default_runtime.py',
]
# The release of lvis on PyPI uses a numpy name that was removed.
custom_imports = dict(imports=['mmrank.evaluation.lvis_numpy'])

model = dict(
    bbox_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.RetinaHead',
        federated=True,
        num_classes=1203,
        # 1203 classes leave no memory for nine anchors.
        anchor_generator=dict(
            _delete_=True,
            type='AnchorGenerator',
            ratios=[1.0],
            octave_base_scale=8,
            scales_per_octave=1,
            strides=[8, 16, 32, 64, 128],
        ),
        loss_cls=dict(
            _delete_=True, type='mmrank.StableAPLoss', mode='per_class'
        ),
    ),
    train_cfg=dict(
        assigner=dict(_delete_=True, type='mmrank.AnchorATSSAssigner', topk=9)
    ),
    # LVIS allows up to 300 boxes, and rare classes have low scores.
    test_cfg=dict(score_thr=0.0001, max_per_img=300),
)
optim_wrapper = dict(optimizer=dict(lr=0.01))

train_pipeline = _base_.train_pipeline
train_pipeline[1].with_mask = False
train_pipeline[-1].meta_keys = (
    'img_id',
    'img_path',
    'ori_shape',
    'img_shape',
    'scale_factor',
    'flip',
    'flip_direction',
    'exhaustive_labels',
)
test_pipeline = _base_.test_pipeline
test_pipeline[2].with_mask = False
train_dataloader = dict(
    dataset=dict(
        dataset=dict(type='mmrank.LVISDataset', pipeline=train_pipeline)
    )
)
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
custom_hooks = [dict(type='mmrank.RankingMonitorHook', interval=50)]
