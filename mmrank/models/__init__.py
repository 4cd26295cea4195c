"""Registered models: losses and heads."""

from .backbones import DeepFeatureMixup, SmallConvNet
from .dense_heads import ListwiseHead
from .heads import RetrievalHead
from .losses import (
    ALRPLoss,
    APLoss,
    AUCLoss,
    BlackBoxAPLoss,
    DRLoss,
    ListwiseAPLoss,
    PMLLoss,
    RankingLoss,
    RankSortLoss,
    SmoothAPLoss,
    SOPRCLoss,
    StableAPLoss,
)
from .retrievers import EmbeddingRetriever
from .roi_heads import ListwiseBBoxHead

__all__ = [
    'ALRPLoss',
    'APLoss',
    'AUCLoss',
    'BlackBoxAPLoss',
    'DRLoss',
    'DeepFeatureMixup',
    'EmbeddingRetriever',
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
    'StableAPLoss',
]
