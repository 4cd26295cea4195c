"""Self-supervised algorithms of mmpretrain's kind."""

from .two_view_learner import TwoViewLearner
from .two_view_preprocessor import TwoViewPreprocessor

__all__ = ['TwoViewLearner', 'TwoViewPreprocessor']
