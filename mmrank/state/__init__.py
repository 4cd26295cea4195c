"""State that outlives a training step: saved, resumed, synchronised."""

from .class_prior import ClassPrior
from .cross_batch_memory import CrossBatchMemory, MemoryEntries
from .label_counts import LabelCounts
from .pair_counts import PairCounts
from .running_mean import CappedImbalance, MeanPositiveScore, RunningMean
from .samples.sample_log_mean import SampleLogMean
from .samples.sample_ranks import SampleRanks
from .samples.sample_state import SampleState
from .samples.sample_temperature import SampleTemperature
from .score_vector import ScoreVector
from .self_balance import SelfBalance
from .sharding.sharded_state import ShardedState, load_shards, save_shard
from .streaming_frequency import StreamingFrequency

__all__ = [
    'CappedImbalance',
    'ClassPrior',
    'CrossBatchMemory',
    'LabelCounts',
    'MeanPositiveScore',
    'MemoryEntries',
    'PairCounts',
    'RunningMean',
    'SampleLogMean',
    'SampleRanks',
    'SampleState',
    'SampleTemperature',
    'ScoreVector',
    'SelfBalance',
    'ShardedState',
    'StreamingFrequency',
    'load_shards',
    'save_shard',
]
