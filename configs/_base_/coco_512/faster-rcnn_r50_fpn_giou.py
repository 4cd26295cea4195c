# Faster R-CNN on cross-entropy for the stable AP paper's section 7.2, which
# gives no details of its two-stage detector: mmdet's, with frozen batch norm,
# boxes by GIoU at mmdet's weight of 10, and the paper's threshold of NMS.
_base_ = 'mmdet::_base_/models/faster-rcnn_r50_fpn.py'

giou = dict(_delete_=True, type='GIoULoss', loss_weight=10.0)
model = dict(
    backbone=dict(
        norm_cfg=dict(type='BN', requires_grad=False), norm_eval=True),
    rpn_head=dict(reg_decoded_bbox=True, loss_bbox=giou),
    roi_head=dict(bbox_head=dict(reg_decoded_bbox=True, loss_bbox=giou)),
    test_cfg=dict(rcnn=dict(nms=dict(type='nms', iou_threshold=0.6))))
del giou
