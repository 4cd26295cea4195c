"""Self-supervised algorithms of mmpretrain's kind."""

from .two_view_preprocessor import TwoViewPreprocessor

__all__ = ['TwoViewPreprocessor']
