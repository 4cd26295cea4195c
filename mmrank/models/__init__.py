"""Registered models: losses and heads."""

from .dense_heads import ListwiseHead
from .losses import (
    ALRPLoss,
    APLoss,
    DRLoss,
    RankingLoss,
    RankSortLoss,
    StableAPLoss,
)

__all__ = [
    'ALRPLoss',
    'APLoss',
    'DRLoss',
    'ListwiseHead',
    'RankSortLoss',
    'RankingLoss',
    'StableAPLoss',
]
