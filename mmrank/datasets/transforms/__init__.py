"""Transforms of data pipelines. Imports mmcv."""

from mmrank.datasets.transforms.random_caption import RandomCaption

__all__ = ['RandomCaption']
