"""Metrics of mmengine runners."""

from mmrank.imports import lazy_package

__all__, __getattr__, __dir__ = lazy_package(__name__)
