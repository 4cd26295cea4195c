"""Registered losses."""

from .alrp_loss import ALRPLoss
from .ap_loss import APLoss
from .dr_loss import DRLoss
from .embedding_batch import EmbeddingBatch
from .error_driven_loss import ErrorDrivenLoss
from .rank_sort_loss import RankSortLoss
from .ranked_lists import RankedLists
from .ranking_loss import RankingLoss
from .soprc_loss import SOPRCLoss
from .stable_ap_loss import StableAPLoss

__all__ = [
    'ALRPLoss',
    'APLoss',
    'DRLoss',
    'EmbeddingBatch',
    'ErrorDrivenLoss',
    'RankSortLoss',
    'RankedLists',
    'RankingLoss',
    'SOPRCLoss',
    'StableAPLoss',
]
