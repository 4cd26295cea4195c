"""Heads of mmpretrain's kind."""

from .image_text_heads import ImageTextContrastHead, ImageTextInBatchHead
from .in_batch_retrieval_head import InBatchRetrievalHead
from .one_vs_rest_head import OneVsRestHead
from .retrieval_head import RetrievalHead

__all__ = [
    'ImageTextContrastHead',
    'ImageTextInBatchHead',
    'InBatchRetrievalHead',
    'OneVsRestHead',
    'RetrievalHead',
]
