"""State that outlives a training step: saved, resumed, synchronised."""

from .class_counts import ClassPrior, LabelCounts
from .cross_batch_memory import CrossBatchMemory, MemoryEntries
from .pair_counts import PairCounts
from .running_mean import CappedImbalance, MeanPositiveScore, RunningMean, ScoreSpread
from .sample_state import SampleLogMean, SampleState, SampleTemperature, TemperatureStep
from .score_vector import ScoreVector
from .self_balance import SelfBalance

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
    'SampleState',
    'SampleTemperature',
    'ScoreSpread',
    'ScoreVector',
    'SelfBalance',
    'TemperatureStep',
]
