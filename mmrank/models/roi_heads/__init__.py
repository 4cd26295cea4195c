"""Box heads of the second stage on listwise losses.

Imports mmdet only when a head is built.
"""

from .listwise_bbox_head import ListwiseBBoxHead, ListwiseBBoxMixin

__all__ = ['ListwiseBBoxHead', 'ListwiseBBoxMixin']
