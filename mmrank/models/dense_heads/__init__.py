"""Dense heads on listwise losses. Imports mmdet only when a head is built."""

from .box_collector import BoxCollector
from .level_collector import LevelCollector
from .listwise_head import ListwiseHead
from .listwise_mixin import ListwiseMixin

__all__ = ['BoxCollector', 'LevelCollector', 'ListwiseHead', 'ListwiseMixin']
