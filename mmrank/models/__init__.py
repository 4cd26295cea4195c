"""Registered models: losses and heads."""

from .backbones import DeepFeatureMixup, SmallConvNet
from .dense_heads import ListwiseHead
from .heads import RetrievalHead
from .losses import (
    ALRPLoss,
    APLoss,
    AUCLoss,
    BimodalISogCLRLoss,
    BlackBoxAPLoss,
    DRLoss,
    InBatchLoss,
    InfoNCELoss,
    ISogCLRLoss,
    LabelledPairLoss,
    ListwiseAPLoss,
    PMLLoss,
    RankingLoss,
    RankSortLoss,
    SmoothAPLoss,
    SogCLRLoss,
    SOPRCLoss,
    StableAPLoss,
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
    'BimodalISogCLRLoss',
    'BlackBoxAPLoss',
    'DRLoss',
    'DeepFeatureMixup',
    'EmbeddingRetriever',
    'EmbeddingTower',
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
    'SmallConvNet',
    'SmoothAPLoss',
    'SogCLRLoss',
    'SparseLinearTower',
    'StableAPLoss',
    'TwoTower',
]
