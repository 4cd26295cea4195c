"""A tower that is a table of embeddings."""

from torch import Tensor, nn

from mmrank.registry import MODELS
from mmrank.state.pair_counts import check_entities


@MODELS.register_module()
class EmbeddingTower(nn.Module):
    """One embedding for each entity: a linear layer on one-hot features.

    Args:
        num_entities: Number of entities.
        channels: Width D of an embedding.
        init_std: Standard deviation of the initial weights; small, so that scores begin near 0.
        sparse: Compute the gradient of the batch's entities only, which SGD and Adagrad of PyTorch
            can take and others refuse.
    """

    def __init__(
        self, num_entities: int, channels: int, init_std: float = 0.02, sparse: bool = False
    ) -> None:
        super().__init__()
        self.num_entities = num_entities
        self.table = nn.Embedding(num_entities, channels, sparse=sparse)
        nn.init.normal_(self.table.weight, std=init_std)

    def forward(self, entities: dict[str, Tensor]) -> Tensor:
        """Embed entities.

        Args:
            entities: Dict with ``ids``: (U,) integers in
                ``[0, num_entities)``.

        Returns:
            (U, D) floats.

        Raises:
            ValueError: If an id is out of range.
        """
        check_entities('ids', entities['ids'], self.table.num_embeddings)
        return self.table(entities['ids'])
