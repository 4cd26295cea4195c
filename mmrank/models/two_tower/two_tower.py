"""A model of two towers whose embeddings' inner product is the similarity."""

import torch
from mmengine.model import BaseModel
from torch import Tensor

from mmrank.errors import UserError
from mmrank.losses.registered import build_loss
from mmrank.metrics.top_k_inner_product import top_k_inner_product
from mmrank.registry import MODELS
from mmrank.settings import check_at_least, one_of
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
