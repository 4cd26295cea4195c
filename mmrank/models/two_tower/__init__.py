"""Two-tower models: similarity of a left and a right entity."""

from .embedding_tower import EmbeddingTower
from .mlp_tower import MLPTower
from .sharded_embedding_tower import ShardedEmbeddingTower
from .sparse_linear_tower import SparseLinearTower
from .two_tower import TwoTower

__all__ = ['EmbeddingTower', 'MLPTower', 'ShardedEmbeddingTower', 'SparseLinearTower', 'TwoTower']
