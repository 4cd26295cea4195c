# The baseline of atss_r18_fpn_graded-ap_bccd.py: a stock ATSS head with its
# focal loss and centerness branch.
_base_ = '../stable_ap/retinanet_r18_fpn_focal_bccd.py'

model = dict(
    type='ATSS',
    bbox_head=dict(
        type='ATSSHead',
        # One square anchor a place, of 32 to 256 pixels.
        anchor_generator=dict(
            _delete_=True,
            type='AnchorGenerator',
            octave_base_scale=4,
            scales_per_octave=1,
            ratios=[1.0],
            strides=[8, 16, 32, 64]),
        loss_centerness=dict(
            type='CrossEntropyLoss', use_sigmoid=True, loss_weight=1.0)),
    train_cfg=dict(assigner=dict(_delete_=True, type='ATSSAssigner', topk=9)))
