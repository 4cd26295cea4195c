"""Registered models: heads, retrievers, encoders, towers."""

from mmrank.calibration.calibration_file import Calibration, affine_logit_map, read_calibration
from mmrank.imports import missing_name, register_optional
from mmrank.registry import MODELS, TASK_UTILS

from .backbones import DeepFeatureMixup, SmallConvNet, TIMMStages
from .calibrated_model import CalibratedModel
from .dense_heads import ListwiseHead
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
from .two_tower import EmbeddingTower, SparseLinearTower, TwoTower

__all__ = [
    'CalibratedModel',
    'Calibration',
    'DeepFeatureMixup',
    'EmbeddingTower',
    'FederatedRoIHead',
    'HuggingFaceTextEncoder',
    'ImageTextContrastHead',
    'ImageTextDualEncoder',
    'ImageTextInBatchHead',
    'InBatchRetrievalHead',
    'ListwiseBBoxHead',
    'ListwiseHead',
    'OneVsRestHead',
    'RetrievalHead',
    'SmallConvNet',
    'SparseLinearTower',
    'TIMMStages',
    'TextTransformer',
    'TwoTower',
    'TwoViewPreprocessor',
    'affine_logit_map',
    'read_calibration',
]


def __getattr__(name: str) -> object:
    raise missing_name(__name__, name, __all__)


# They derive from classes of mmpretrain.
_OPTIONAL = {
    'EmbeddingRetriever': f'{__name__}.embedding_retriever.EmbeddingRetriever',
    'TwoViewLearner': f'{__name__}.selfsup.two_view_learner.TwoViewLearner',
}
register_optional(MODELS, 'mmpretrain', _OPTIONAL)
# Of mmdet.
_ASSIGNERS = {'AnchorATSSAssigner': f'{__name__}.atss_assigner.AnchorATSSAssigner'}
register_optional(TASK_UTILS, 'mmdet', _ASSIGNERS)
