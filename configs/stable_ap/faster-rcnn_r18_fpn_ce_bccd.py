# The baseline of faster-rcnn_r18_fpn_stable-ap_bccd.py.
_base_ = [
    'mmdet::_base_/default_runtime.py',
    '../_base_/models/faster-rcnn_r18_fpn_small.py',
    '../_base_/datasets/bccd.py',
    '../_base_/schedules/schedule_bccd.py',
]

model = dict(roi_head=dict(bbox_head=dict(num_classes=3)))
default_hooks = dict(
    logger=dict(interval=10),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook', interval=1, max_keep_ckpts=1))
custom_hooks = [dict(type='mmrank.RNGStateHook')]
log_processor = dict(window_size=10)
