"""Towers that embed entities: a table, and a linear layer on sparse features."""

from torch import Tensor, nn

from mmrank.registry import MODELS
from mmrank.state.pair_counts import check_entities

#: Standard deviation of the initial weights; small, so that scores begin near 0.
_INIT_STD = 0.02


@MODELS.register_module()
class EmbeddingTower(nn.Module):
    """One embedding for each entity: a linear layer on one-hot features.

    Args:
        num_entities: Number of entities.
        channels: Width D of an embedding.
        sparse: Compute the gradient of the batch's entities only, which SGD and Adagrad of PyTorch
            can take and others refuse.
    """

    def __init__(self, num_entities: int, channels: int, sparse: bool = False) -> None:
        super().__init__()
        self.num_entities = num_entities
        self.table = nn.Embedding(num_entities, channels, sparse=sparse)
        nn.init.normal_(self.table.weight, std=_INIT_STD)

    def forward(self, entities: dict[str, Tensor]) -> Tensor:
        """(U, D) embeddings of ``ids``, (U,) integers in ``[0, num_entities)``."""
        check_entities('ids', entities['ids'], self.table.num_embeddings)
        return self.table(entities['ids'])


@MODELS.register_module()
class SparseLinearTower(nn.Module):
    """A linear layer without bias, O(non-zero features).

    Args:
        num_features: Number of features.
        channels: Width D of an embedding.
        sparse: See :class:`EmbeddingTower`.
    """

    def __init__(self, num_features: int, channels: int, sparse: bool = False) -> None:
        super().__init__()
        self.linear = nn.EmbeddingBag(
            num_features, channels, mode='sum', sparse=sparse, include_last_offset=True
        )
        nn.init.normal_(self.linear.weight, std=_INIT_STD)

    def forward(self, entities: dict[str, Tensor]) -> Tensor:
        """(U, D) embeddings; zeros for an entity without features.

        The rows of a sparse matrix are ``starts`` (U + 1,) and ``indices`` (E,) integers, and
        ``values`` (E,) floats: row i has the entries ``starts[i]`` to ``starts[i + 1] - 1``.
        """
        if 'indices' not in entities:
            what = 'the data set has no features for SparseLinearTower'
            raise ValueError(f"{what}; use file_format='xmc', or type='mmrank.EmbeddingTower'")
        check_entities('feature indices', entities['indices'], self.linear.num_embeddings)
        weights = entities['values'].to(self.linear.weight.dtype)
        return self.linear(entities['indices'], entities['starts'], per_sample_weights=weights)
