"""Data sets and checks of annotation files.

Importing this package registers what needs neither mmdet nor mmpretrain.
"""

from mmrank.datasets.checked_coco import build_checked_coco_dataset

__all__ = ['build_checked_coco_dataset']
