"""Samplers of batches with several images a class."""

from mmrank.datasets.samplers.pk_sampler import PKSampler

__all__ = ['PKSampler']
