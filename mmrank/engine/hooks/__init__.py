"""Hooks of scope ``mmrank``."""

from .after_test_hooks import FurtherTestsHook, LinearEvaluationHook
from .atomic_checkpoint_hook import AtomicCheckpointHook
from .checkpoint_match_hook import CheckpointMatchHook
from .data_check_hooks import LabelCheckHook, SampleIndexHook
from .interrupt_hook import InterruptHook
from .loss_hooks import (
    ClassCountsHook,
    ClassPairsHook,
    CosineBeta0Hook,
    DeferredReweightingHook,
    PairCountsHook,
)
from .previous_weights_hook import PreviousWeightsHook
from .ranking_monitor_hook import RankingMonitorHook
from .rng_state_hook import RNGStateHook

__all__ = [
    'AtomicCheckpointHook',
    'CheckpointMatchHook',
    'ClassCountsHook',
    'ClassPairsHook',
    'CosineBeta0Hook',
    'DeferredReweightingHook',
    'FurtherTestsHook',
    'InterruptHook',
    'LabelCheckHook',
    'LinearEvaluationHook',
    'PairCountsHook',
    'PreviousWeightsHook',
    'RNGStateHook',
    'RankingMonitorHook',
    'SampleIndexHook',
]
