"""Registered losses."""

from .alrp_loss import ALRPLoss
from .ap_loss import APLoss
from .auc_loss import AUCLoss
from .blackbox_ap_loss import BlackBoxAPLoss
from .dr_loss import DRLoss
from .embedding_batch import EmbeddingBatch
from .error_driven_loss import ErrorDrivenLoss
from .listwise_ap_loss import ListwiseAPLoss
from .pml_loss import PMLLoss
from .rank_sort_loss import RankSortLoss
from .ranked_lists import RankedLists
from .ranking_loss import RankingLoss
from .smooth_ap_loss import SmoothAPLoss
from .soprc_loss import SOPRCLoss
from .stable_ap_loss import StableAPLoss

__all__ = [
    'ALRPLoss',
    'APLoss',
    'AUCLoss',
    'BlackBoxAPLoss',
    'DRLoss',
    'EmbeddingBatch',
    'ErrorDrivenLoss',
    'ListwiseAPLoss',
    'PMLLoss',
    'RankSortLoss',
    'RankedLists',
    'RankingLoss',
    'SOPRCLoss',
    'SmoothAPLoss',
    'StableAPLoss',
]
