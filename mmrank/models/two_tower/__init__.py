"""Two-tower models: similarity of a left and a right entity."""

from .towers import EmbeddingTower, SparseLinearTower
from .two_tower import TwoTower

__all__ = ['EmbeddingTower', 'SparseLinearTower', 'TwoTower']
