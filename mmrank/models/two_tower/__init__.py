"""Two-tower models: similarity of a left and a right entity."""

from .towers import EmbeddingTower, MLPTower, SparseLinearTower
from .two_tower import TwoTower

__all__ = ['EmbeddingTower', 'MLPTower', 'SparseLinearTower', 'TwoTower']
