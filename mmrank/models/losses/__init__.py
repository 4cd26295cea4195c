"""Registered losses."""

from .alrp_loss import ALRPLoss
from .ap_loss import APLoss
from .auc_loss import AUCLoss
from .barlow_twins_loss import BarlowTwinsLoss
from .bimodal_isogclr_loss import BimodalISogCLRLoss
from .blackbox_ap_loss import BlackBoxAPLoss
from .class_balanced_ce_loss import ClassBalancedCELoss
from .class_count_loss import ClassCountLoss
from .clip_loss import CLIPLoss
from .contrastive_loss import ContrastiveLoss
from .cyclip_loss import CyCLIPLoss
from .dr_loss import DRLoss
from .embedding_batch import EmbeddingBatch
from .error_driven_loss import ErrorDrivenLoss
from .flat_clr_loss import FlatCLRLoss
from .in_batch_loss import InBatchLoss
from .info_nce_loss import InfoNCELoss
from .isogclr_loss import ISogCLRLoss
from .labelled_pair_loss import LabelledPairLoss
from .ldam_loss import LDAMLoss
from .listwise_ap_loss import ListwiseAPLoss
from .mauc_loss import MAUCLoss
from .pml_loss import PMLLoss
from .rank_sort_loss import RankSortLoss
from .ranked_lists import RankedLists
from .ranking_loss import RankingLoss
from .simco_loss import SimCoLoss
from .smooth_ap_loss import SmoothAPLoss
from .soap_loss import SOAPLoss
from .sogclr_loss import SogCLRLoss
from .soprc_loss import SOPRCLoss
from .spectral_contrastive_loss import SpectralContrastiveLoss
from .stable_ap_loss import StableAPLoss
from .vicreg_loss import VICRegLoss

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
    'ISogCLRLoss',
    'InBatchLoss',
    'InfoNCELoss',
    'LDAMLoss',
    'LabelledPairLoss',
    'ListwiseAPLoss',
    'MAUCLoss',
    'PMLLoss',
    'RankSortLoss',
    'RankedLists',
    'RankingLoss',
    'SOAPLoss',
    'SOPRCLoss',
    'SimCoLoss',
    'SmoothAPLoss',
    'SogCLRLoss',
    'SpectralContrastiveLoss',
    'StableAPLoss',
    'VICRegLoss',
]
