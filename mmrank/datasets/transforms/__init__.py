"""Transforms of data pipelines. Imports mmcv."""

from mmrank.datasets.transforms.check_finite import CheckFinite
from mmrank.datasets.transforms.load_cached_features import FeatureCache, LoadCachedFeatures
from mmrank.datasets.transforms.load_image_from_bytes import LoadImageFromBytes
from mmrank.datasets.transforms.random_caption import RandomCaption

__all__ = [
    'CheckFinite',
    'FeatureCache',
    'LoadCachedFeatures',
    'LoadImageFromBytes',
    'RandomCaption',
]
