"""Registered models: heads, retrievers, encoders, towers."""

from mmengine.runner.checkpoint import CheckpointLoader

from mmrank.calibration.calibration_file import Calibration, read_calibration
from mmrank.imports import missing_name, register_optional
from mmrank.registry import MODELS, TASK_UTILS

from .backbones.feature_mixup import DeepFeatureMixup
from .backbones.imagenet_weights import load_package_weights
from .backbones.small_conv_net import SmallConvNet
from .backbones.timm_stages import TIMMStages
from .box_heads import FederatedRoIHead, ListwiseBBoxHead
from .calibrated_model import CalibratedModel
from .dense_heads.listwise_head import ListwiseHead
from .heads.image_text_heads import ImageTextContrastHead, ImageTextInBatchHead
from .heads.in_batch_retrieval_head import InBatchRetrievalHead
from .heads.one_vs_rest_head import OneVsRestHead
from .heads.retrieval_head import RetrievalHead
from .multimodal.image_text_dual_encoder import ImageTextDualEncoder
from .multimodal.text_encoders import HuggingFaceTextEncoder, TextTransformer
from .selfsup.two_view_preprocessor import TwoViewPreprocessor
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
CheckpointLoader.register_scheme('mmrank://', load_package_weights, force=True)
