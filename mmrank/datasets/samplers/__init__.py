"""Samplers of batches: images by class, positives by rate, positive pairs."""

from mmrank.datasets.samplers.pair_samplers import ClassPairSampler, InBatchPairSampler
from mmrank.datasets.samplers.pk_sampler import PKSampler
from mmrank.datasets.samplers.positive_samplers import PositiveRateSampler

__all__ = ['ClassPairSampler', 'InBatchPairSampler', 'PKSampler', 'PositiveRateSampler']
