"""Samplers of batches: images by class, positives by rate, positive pairs."""

from mmrank.datasets.samplers.class_pair_sampler import ClassPairSampler
from mmrank.datasets.samplers.cross_pair_sampler import CrossPairSampler
from mmrank.datasets.samplers.in_batch_pair_sampler import InBatchPairSampler
from mmrank.datasets.samplers.multi_label_positive_sampler import MultiLabelPositiveSampler
from mmrank.datasets.samplers.naive_pair_sampler import NaivePairSampler
from mmrank.datasets.samplers.pk_sampler import PKSampler
from mmrank.datasets.samplers.positive_rate_sampler import PositiveRateSampler
from mmrank.datasets.samplers.shard_sampler import ShardSampler

__all__ = [
    'ClassPairSampler',
    'CrossPairSampler',
    'InBatchPairSampler',
    'MultiLabelPositiveSampler',
    'NaivePairSampler',
    'PKSampler',
    'PositiveRateSampler',
    'ShardSampler',
]
