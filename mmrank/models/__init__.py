"""Registered models: heads, retrievers, encoders, towers."""

import mmrank.models.retrievers  # noqa: F401  registers its class

from .backbones import DeepFeatureMixup, SmallConvNet, TIMMStages
from .calibration import CalibratedModel, Calibration, affine_logit_map, read_calibration
from .dense_heads import ListwiseHead
from .grad_cache import GradCacheMixin
from .heads import (
    ImageTextContrastHead,
    ImageTextInBatchHead,
    InBatchRetrievalHead,
    OneVsRestHead,
    RetrievalHead,
)
from .multimodal import HuggingFaceTextEncoder, ImageTextDualEncoder, TextTransformer
from .roi_heads import FederatedRoIHead, ListwiseBBoxHead
from .selfsup import TwoViewPreprocessor
from .two_tower import EmbeddingTower, MLPTower, ShardedEmbeddingTower, SparseLinearTower, TwoTower

__all__ = [
    'CalibratedModel',
    'Calibration',
    'DeepFeatureMixup',
    'EmbeddingTower',
    'FederatedRoIHead',
    'GradCacheMixin',
    'HuggingFaceTextEncoder',
    'ImageTextContrastHead',
    'ImageTextDualEncoder',
    'ImageTextInBatchHead',
    'InBatchRetrievalHead',
    'ListwiseBBoxHead',
    'ListwiseHead',
    'MLPTower',
    'OneVsRestHead',
    'RetrievalHead',
    'ShardedEmbeddingTower',
    'SmallConvNet',
    'SparseLinearTower',
    'TIMMStages',
    'TextTransformer',
    'TwoTower',
    'TwoViewPreprocessor',
    'affine_logit_map',
    'read_calibration',
]
