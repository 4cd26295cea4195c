"""Two-tower models: similarity of a left and a right entity."""

from .sharded_embedding_tower import ShardedEmbeddingTower
from .towers import EmbeddingTower, MLPTower, SparseLinearTower
from .two_tower import TwoTower

__all__ = ['EmbeddingTower', 'MLPTower', 'ShardedEmbeddingTower', 'SparseLinearTower', 'TwoTower']
