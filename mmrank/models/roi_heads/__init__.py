"""Box heads of the second stage on listwise losses.

Imports mmdet only when a head is built.
"""

from .federated_roi_head import FederatedRoIHead
from .listwise_bbox_head import ListwiseBBoxHead, ListwiseBBoxMixin

__all__ = ['FederatedRoIHead', 'ListwiseBBoxHead', 'ListwiseBBoxMixin']
