"""Registered losses; as classes they need torch alone."""

from .contrastive.base import ContrastiveLoss
from .contrastive.clip import CLIPLoss, IndividualCLIPLoss
from .contrastive.cyclip import CyCLIPLoss
from .contrastive.decorrelation import BarlowTwinsLoss, VICRegLoss
from .contrastive.info_nce import FlatCLRLoss, InfoNCELoss
from .contrastive.others import SimCoLoss, SpectralContrastiveLoss, TaUSimCLRLoss
from .contrastive.siglip import SigLIPLoss
from .contrastive.sogclr import BimodalISogCLRLoss, ISogCLRLoss, SogCLRLoss
from .inputs import EmbeddingBatch
from .long_tail.class_balanced_ce_loss import ClassBalancedCELoss
from .long_tail.class_count_loss import ClassCountLoss
from .long_tail.ldam_loss import LDAMLoss
from .metric_learning.pml_loss import PMLLoss
from .protocols import (
    HasDiagnostics,
    HasLogitCentre,
    KeepsSampleState,
    Prefetches,
    Reweights,
    ShiftsLogits,
    TakesBoxValues,
    TakesClassCounts,
    TakesClassLabels,
    TakesPairCounts,
    TakesPairLabels,
    TrainsEmbeddings,
)
from .ranking.auc_loss import AUCLoss, MAUCLoss
from .ranking.blackbox_ap_loss import BlackBoxAPLoss
from .ranking.dr_loss import DRLoss
from .ranking.error_driven.alrp_loss import ALRPLoss
from .ranking.error_driven.ap_loss import APLoss
from .ranking.error_driven.error_driven_loss import ErrorDrivenLoss
from .ranking.error_driven.rank_sort_loss import RankSortLoss
from .ranking.listwise_ap_loss import ListwiseAPLoss
from .ranking.ranking_loss import PaddedLoss, RankedLists, RankingLoss
from .ranking.smooth_ap_loss import SmoothAPLoss
from .ranking.soap_loss import SOAPLoss
from .ranking.sodeep_loss import RankSorter, SoDeepLoss
from .ranking.soprc_loss import SOPRCLoss
from .ranking.stable_ap_loss import StableAPLoss
from .ranking.sum_loss import SumLoss
from .two_tower.in_batch_loss import InBatchLoss
from .two_tower.in_batch_softmax_loss import InBatchSoftmaxLoss
from .two_tower.labelled_pair_loss import LabelledPairLoss

__all__ = [
    'ALRPLoss',
    'APLoss',
    'AUCLoss',
    'BarlowTwinsLoss',
    'BimodalISogCLRLoss',
    'BlackBoxAPLoss',
    'CLIPLoss',
    'ClassBalancedCELoss',
    'ClassCountLoss',
    'ContrastiveLoss',
    'CyCLIPLoss',
    'DRLoss',
    'EmbeddingBatch',
    'ErrorDrivenLoss',
    'FlatCLRLoss',
    'HasDiagnostics',
    'HasLogitCentre',
    'ISogCLRLoss',
    'InBatchLoss',
    'InBatchSoftmaxLoss',
    'IndividualCLIPLoss',
    'InfoNCELoss',
    'KeepsSampleState',
    'LDAMLoss',
    'LabelledPairLoss',
    'ListwiseAPLoss',
    'MAUCLoss',
    'PMLLoss',
    'PaddedLoss',
    'Prefetches',
    'RankSortLoss',
    'RankSorter',
    'RankedLists',
    'RankingLoss',
    'Reweights',
    'SOAPLoss',
    'SOPRCLoss',
    'ShiftsLogits',
    'SigLIPLoss',
    'SimCoLoss',
    'SmoothAPLoss',
    'SoDeepLoss',
    'SogCLRLoss',
    'SpectralContrastiveLoss',
    'StableAPLoss',
    'SumLoss',
    'TaUSimCLRLoss',
    'TakesBoxValues',
    'TakesClassCounts',
    'TakesClassLabels',
    'TakesPairCounts',
    'TakesPairLabels',
    'TrainsEmbeddings',
    'VICRegLoss',
]
