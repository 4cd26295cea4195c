"""Samplers of batches: several images a class, positive pairs."""

from mmrank.datasets.samplers.cross_pair_sampler import CrossPairSampler
from mmrank.datasets.samplers.in_batch_pair_sampler import InBatchPairSampler
from mmrank.datasets.samplers.naive_pair_sampler import NaivePairSampler
from mmrank.datasets.samplers.pk_sampler import PKSampler

__all__ = [
    'CrossPairSampler',
    'InBatchPairSampler',
    'NaivePairSampler',
    'PKSampler',
]
