"""State that outlives a training step: saved, resumed, synchronised."""

from .mean_positive_score import MeanPositiveScore
from .self_balance import SelfBalance

__all__ = ['MeanPositiveScore', 'SelfBalance']
