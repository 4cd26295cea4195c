"""Optimisers."""

from .sum import SUM

__all__ = ['SUM']
