"""Samplers of batches: images by class, positives by rate, positive pairs."""

from mmrank.datasets.samplers.class_samplers import PKSampler, PositiveRateSampler
from mmrank.datasets.samplers.pair_samplers import ClassPairSampler, InBatchPairSampler

__all__ = ['ClassPairSampler', 'InBatchPairSampler', 'PKSampler', 'PositiveRateSampler']
