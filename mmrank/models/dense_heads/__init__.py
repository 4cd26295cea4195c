"""Dense heads on listwise losses. Imports mmdet only when a head is built."""

from .level_collector import LevelCollector
from .listwise_head import ListwiseHead, ListwiseMixin

__all__ = ['LevelCollector', 'ListwiseHead', 'ListwiseMixin']
