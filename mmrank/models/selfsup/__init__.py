"""Self-supervised algorithms of mmpretrain's kind."""

from mmrank.optional_class import register_optional
from mmrank.registry import MODELS

from .two_view_preprocessor import TwoViewPreprocessor

register_optional(
    MODELS, 'mmpretrain', {'TwoViewLearner': (f'{__name__}.two_view_learner.TwoViewLearner')}
)

__all__ = ['TwoViewPreprocessor']
