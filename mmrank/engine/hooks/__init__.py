"""Hooks of scope ``mmrank``."""

from .atomic_checkpoint_hook import AtomicCheckpointHook
from .checkpoint_match_hook import CheckpointMatchHook
from .class_counts_hook import ClassCountsHook
from .class_pairs_hook import ClassPairsHook
from .deferred_reweighting_hook import DeferredReweightingHook
from .interrupt_hook import InterruptHook
from .label_check_hook import LabelCheckHook
from .pair_counts_hook import PairCountsHook
from .previous_weights_hook import PreviousWeightsHook
from .ranking_monitor_hook import RankingMonitorHook
from .rng_state_hook import RNGStateHook
from .sample_index_hook import SampleIndexHook
from .sharded_state_hook import ShardedStateHook
from .temperature_hook import TemperatureHook

__all__ = [
    'AtomicCheckpointHook',
    'CheckpointMatchHook',
    'ClassCountsHook',
    'ClassPairsHook',
    'DeferredReweightingHook',
    'InterruptHook',
    'LabelCheckHook',
    'PairCountsHook',
    'PreviousWeightsHook',
    'RNGStateHook',
    'RankingMonitorHook',
    'SampleIndexHook',
    'ShardedStateHook',
    'TemperatureHook',
]
