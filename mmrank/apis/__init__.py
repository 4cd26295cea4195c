"""Building blocks of the command-line tools, and trained models from checkpoints."""

from mmrank.imports import lazy_package

__all__, __getattr__, __dir__ = lazy_package(__name__)
