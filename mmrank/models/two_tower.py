"""Two towers whose embeddings' inner product is the similarity: tables, or sparse features."""

import torch
from mmengine.model import BaseModel
from torch import Tensor, nn

from mmrank.errors import UserError
from mmrank.losses.registered import build_loss
from mmrank.metrics.top_k_inner_product import top_k_inner_product
from mmrank.registry import MODELS
from mmrank.settings import check_at_least, one_of
from mmrank.state.pair_counts import check_entities
from mmrank.training_set import TrainingSet


@MODELS.register_module()
class TwoTower(BaseModel):
    """Scores ``<f(u), g(v)>`` of left and right entities.

    Args:
        left: Config of the tower f.
        right: Config of the tower g; it must embed entities by their ids.
        loss: Config of ``mmrank.InBatchLoss`` or ``mmrank.InBatchSoftmaxLoss``.
        top_k: Right entities to find for each left one in evaluation.
    """

    def __init__(
        self,
        left: dict,
        right: dict,
        loss: dict,
        top_k: int = 25,
        data_preprocessor: dict | None = None,
    ) -> None:
        super().__init__(data_preprocessor)
        check_at_least(1, top_k=top_k)
        self.left = MODELS.build(left)
        self.right = MODELS.build(right)
        self.pair_loss = build_loss('loss', loss)
        self.training_set = TrainingSet()
        self.top_k = top_k
        self._all_right = (None, None)

    def forward(self, mode: str = 'tensor', **batch):
        """Embed, compute the ``loss`` of, or ``predict`` a batch of ``mmrank.InteractionDataset``.

        ``tensor`` returns embeddings of the distinct left and right entities. ``predict`` takes
        batches of ``mmrank.TopKDataset`` and returns a dict for each left entity, with ``top_k``:
        (K,) int64 right entities, best first, -1 where there are no more.
        """
        one_of('mode', mode, ('tensor', 'loss', 'predict'))
        if mode == 'tensor':
            return self.left(batch['left']), self.right(batch['right'])
        return getattr(self, mode)(**batch)

    def train(self, mode: bool = True) -> 'TwoTower':
        # A hook that swaps averaged weights in does so unseen by versions.
        self._all_right = (None, None)
        return super().train(mode)

    def loss(
        self,
        left: dict[str, Tensor],
        right: dict[str, Tensor],
        rows: Tensor,
        cols: Tensor,
        left_index: Tensor,
        right_index: Tensor,
    ) -> dict[str, Tensor]:
        """Dict with ``loss`` of a batch of ``mmrank.InteractionDataset``.

        ``left`` and ``right`` are the distinct entities, ``rows`` and ``cols`` (B,) the entities of
        the pairs, at the places ``left_index`` and ``right_index`` there.
        """
        known = self.training_set.metainfo()
        for side, key in (('left', 'num_rows'), ('right', 'num_cols')):
            number = getattr(getattr(self, side), 'num_entities', None)
            if None not in (number, known.get(key)) and number != known[key]:
                raise UserError(
                    f'model.{side}.num_entities={number}, but the training set has {known[key]} '
                    f'{side} entities: a table with more rows has some that are never trained. '
                    f'Fix: model.{side}.num_entities={known[key]}'
                )
        f = self.left(left)
        g = self.right(right)
        return dict(loss=self.pair_loss(f, g, rows, cols, left_index, right_index))

    @torch.no_grad()
    def predict(
        self,
        left: dict[str, Tensor],
        num_right: int,
        seen: dict[str, Tensor],
        true: dict[str, Tensor] | None = None,
    ) -> list[dict[str, Tensor]]:
        """Find the best of ``num_right`` right entities for each left one, see :meth:`forward`.

        The ``seen`` pairs of the training are left out; the held-out pairs ``true`` matter to the
        metric only.
        """
        # All right entities are embedded again only when the tower has changed: an optimiser that
        # writes a weight in place raises its version.
        weights = list(self.right.parameters())
        state = [num_right, *((id(x), x._version, x.device) for x in weights)]
        if self.right.training or self._all_right[0] != state:
            ids = torch.arange(num_right, device=weights[0].device)
            self._all_right = state, self.right(dict(ids=ids))
        _, right = self._all_right
        f = self.left(left)
        _, best = top_k_inner_product(f, right, self.top_k, seen['rows'], seen['cols'])
        return [dict(top_k=x) for x in best]


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
