"""Optimisers and their wrappers."""

from .grad_cache_optim_wrapper import GradCacheAmpOptimWrapper, GradCacheOptimWrapper
from .sum import SUM

__all__ = ['SUM', 'GradCacheAmpOptimWrapper', 'GradCacheOptimWrapper']
