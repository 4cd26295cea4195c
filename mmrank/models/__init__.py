"""Registered models: losses and heads."""

from .backbones import DeepFeatureMixup, SmallConvNet
from .dense_heads import ListwiseHead
from .heads import RetrievalHead
from .losses import (
    ALRPLoss,
    APLoss,
    AUCLoss,
    BarlowTwinsLoss,
    BimodalISogCLRLoss,
    BlackBoxAPLoss,
    DRLoss,
    FlatCLRLoss,
    InBatchLoss,
    InfoNCELoss,
    ISogCLRLoss,
    LabelledPairLoss,
    ListwiseAPLoss,
    PMLLoss,
    RankingLoss,
    RankSortLoss,
    SimCoLoss,
    SmoothAPLoss,
    SogCLRLoss,
    SOPRCLoss,
    SpectralContrastiveLoss,
    StableAPLoss,
    VICRegLoss,
)
from .retrievers import EmbeddingRetriever
from .roi_heads import ListwiseBBoxHead
from .two_tower import (
    EmbeddingTower,
    MLPTower,
    SparseLinearTower,
    TwoTower,
)

__all__ = [
    'ALRPLoss',
    'APLoss',
    'AUCLoss',
    'BarlowTwinsLoss',
    'BimodalISogCLRLoss',
    'BlackBoxAPLoss',
    'DRLoss',
    'DeepFeatureMixup',
    'EmbeddingRetriever',
    'EmbeddingTower',
    'FlatCLRLoss',
    'ISogCLRLoss',
    'InBatchLoss',
    'InfoNCELoss',
    'LabelledPairLoss',
    'ListwiseAPLoss',
    'ListwiseBBoxHead',
    'ListwiseHead',
    'MLPTower',
    'PMLLoss',
    'RankSortLoss',
    'RankingLoss',
    'RetrievalHead',
    'SOPRCLoss',
    'SimCoLoss',
    'SmallConvNet',
    'SmoothAPLoss',
    'SogCLRLoss',
    'SparseLinearTower',
    'SpectralContrastiveLoss',
    'StableAPLoss',
    'TwoTower',
    'VICRegLoss',
]
