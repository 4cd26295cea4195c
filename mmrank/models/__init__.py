"""Registered models: losses and heads."""

from .dense_heads import ListwiseHead
from .losses import RankingLoss, StableAPLoss

__all__ = ['ListwiseHead', 'RankingLoss', 'StableAPLoss']
