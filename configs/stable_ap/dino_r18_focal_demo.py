# The baseline twin of dino_r18_stable-ap_demo.py.
_base_ = [
    'mmdet::_base_/default_runtime.py',
    '../_base_/models/dino_r18_small.py',
    '../_base_/datasets/shapes_coco.py',
    '../_base_/schedules/schedule_small_detr.py',
]

default_hooks = dict(
    logger=dict(interval=10),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook', interval=1, max_keep_ckpts=1))
custom_hooks = [dict(type='mmrank.RNGStateHook')]
log_processor = dict(window_size=10)
