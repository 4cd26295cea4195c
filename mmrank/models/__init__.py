"""Registered models: losses and heads."""

from .dense_heads import ListwiseHead
from .losses import (
    ALRPLoss,
    APLoss,
    DRLoss,
    RankingLoss,
    RankSortLoss,
    SOPRCLoss,
    StableAPLoss,
)
from .roi_heads import ListwiseBBoxHead

__all__ = [
    'ALRPLoss',
    'APLoss',
    'DRLoss',
    'ListwiseBBoxHead',
    'ListwiseHead',
    'RankSortLoss',
    'RankingLoss',
    'SOPRCLoss',
    'StableAPLoss',
]
