"""State that outlives a training step: saved, resumed, synchronised."""

from .mean_positive_score import MeanPositiveScore

__all__ = ['MeanPositiveScore']
