"""State that outlives a training step: saved, resumed, synchronised."""

from .class_prior import ClassPrior
from .cross_batch_memory import CrossBatchMemory, MemoryEntries
from .label_counts import LabelCounts
from .mean_positive_score import MeanPositiveScore
from .pair_counts import PairCounts
from .sample_log_mean import SampleLogMean
from .sample_ranks import SampleRanks
from .sample_state import SampleState
from .sample_temperature import SampleTemperature
from .score_vector import ScoreVector
from .self_balance import SelfBalance

__all__ = [
    'ClassPrior',
    'CrossBatchMemory',
    'LabelCounts',
    'MeanPositiveScore',
    'MemoryEntries',
    'PairCounts',
    'SampleLogMean',
    'SampleRanks',
    'SampleState',
    'SampleTemperature',
    'ScoreVector',
    'SelfBalance',
]
