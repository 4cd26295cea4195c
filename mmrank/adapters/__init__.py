"""Losses of mmrank in detectors and trainers of other libraries.

Importing this package imports no other library; each file serves one, and imports it when it is
first used.
"""

from mmrank.imports import lazy_package

__all__, __getattr__, __dir__ = lazy_package(__name__)
