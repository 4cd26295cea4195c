"""Transforms of data pipelines. Imports mmcv."""

from mmrank.datasets.transforms.load_cached_features import FeatureCache, LoadCachedFeatures
from mmrank.datasets.transforms.transforms import CheckFinite, RandomCaption

__all__ = ['CheckFinite', 'FeatureCache', 'LoadCachedFeatures', 'RandomCaption']
