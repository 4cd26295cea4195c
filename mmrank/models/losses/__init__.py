"""Registered losses."""

from .ranking_loss import RankingLoss
from .stable_ap_loss import StableAPLoss

__all__ = ['RankingLoss', 'StableAPLoss']
