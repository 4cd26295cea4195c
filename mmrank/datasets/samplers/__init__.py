"""Samplers of batches: images by class, positives by rate, positive pairs."""

from mmrank.datasets.samplers.pair_samplers import (
    ClassPairSampler,
    CrossPairSampler,
    InBatchPairSampler,
    NaivePairSampler,
)
from mmrank.datasets.samplers.pk_sampler import PKSampler
from mmrank.datasets.samplers.positive_samplers import (
    MultiLabelPositiveSampler,
    PositiveRateSampler,
)

__all__ = [
    'ClassPairSampler',
    'CrossPairSampler',
    'InBatchPairSampler',
    'MultiLabelPositiveSampler',
    'NaivePairSampler',
    'PKSampler',
    'PositiveRateSampler',
]
