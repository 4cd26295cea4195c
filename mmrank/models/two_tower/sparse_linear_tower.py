"""A tower that is a linear layer on sparse features."""

from torch import Tensor, nn

from mmrank.registry import MODELS
from mmrank.state.pair_counts import check_entities


@MODELS.register_module()
class SparseLinearTower(nn.Module):
    """A linear layer without bias; costs what the non-zero features cost.

    Args:
        num_features: Number of features.
        channels: Width D of an embedding.
        init_std: Standard deviation of the initial weights; small, so that scores begin near 0.
        sparse: Compute the gradient of the batch's features only, which SGD and Adagrad of PyTorch
            can take and others refuse.
    """

    def __init__(
        self, num_features: int, channels: int, init_std: float = 0.02, sparse: bool = False
    ) -> None:
        super().__init__()
        self.linear = nn.EmbeddingBag(
            num_features, channels, mode='sum', sparse=sparse, include_last_offset=True
        )
        nn.init.normal_(self.linear.weight, std=init_std)

    def forward(self, entities: dict[str, Tensor]) -> Tensor:
        """Embed entities.

        Args:
            entities: Dict with the rows of a sparse matrix: ``starts``
                (U + 1,), ``indices`` (E,) integers, ``values`` (E,) floats; see
                :class:`mmrank.datasets.interactions.SparseFeatures`.

        Returns:
            (U, D) floats; zeros for an entity without features.

        Raises:
            ValueError: If there are no features, or one is out of range.
        """
        if 'indices' not in entities:
            raise ValueError(
                'the data set has no features for SparseLinearTower; use '
                "file_format='xmc', or type='mmrank.EmbeddingTower'"
            )
        check_entities('feature indices', entities['indices'], self.linear.num_embeddings)
        return self.linear(
            entities['indices'],
            entities['starts'],
            per_sample_weights=entities['values'].to(self.linear.weight.dtype),
        )
