"""Operators of rotated boxes, which mmrank does not have: each refuses when it is called."""

from .extension import box_iou_rotated, nms_rotated

__all__ = ['box_iou_rotated', 'nms_rotated']
