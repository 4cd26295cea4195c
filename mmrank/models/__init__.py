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

__all__ = [
    'ALRPLoss',
    'APLoss',
    'AUCLoss',
    'BimodalISogCLRLoss',
    'BlackBoxAPLoss',
    'DRLoss',
    'DeepFeatureMixup',
    'EmbeddingRetriever',
    'ISogCLRLoss',
    'InBatchLoss',
    'InfoNCELoss',
    'ListwiseAPLoss',
    'ListwiseBBoxHead',
    'ListwiseHead',
    'PMLLoss',
    'RankSortLoss',
    'RankingLoss',
    'RetrievalHead',
    'SOPRCLoss',
    'SmallConvNet',
    'SmoothAPLoss',
    'SogCLRLoss',
    'StableAPLoss',
]
