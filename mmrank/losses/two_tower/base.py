"""Base of the losses of two-tower models, and the pairs of a batch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.errors import UserError, UserTypeError
from mmrank.losses.embeddings import checked_labels
from mmrank.settings import ScopedLoss
from mmrank.state.pair_counts import PairCounts
from mmrank.tensors import check_index, check_tensors, checked_weight, zero_absent


@dataclass
class PairBatch:
    """Pairs of a batch, whose shapes are checked, and right entities of no pair behind them."""

    left: Tensor  # (U, D) floats, one for each pair, or for each left entity
    right: Tensor  # (V, D) floats, likewise
    rows: Tensor  # (B,) left entities
    cols: Tensor  # (B + C,) right entities
    left_index: Tensor | None  # (B,) integers, the row of ``left``; None: they are in order
    right_index: Tensor | None  # (B + C,), likewise
    labels: Tensor | None  # (B + C,) int64
    weight: Tensor | None  # (B + C,) finite and >= 0


class TwoTowerLoss(ScopedLoss):
    """Base of losses of the pairs of a batch: a subclass has :meth:`batch_loss`."""

    takes_labels = False  # whether other right entities may be positives of a pair
    wants_pair_counts = True

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.counts = PairCounts()

    def set_pairs(self, rows: Tensor, cols: Tensor, shape: tuple[int, int]) -> None:
        """See :meth:`PairCounts.set_pairs`."""
        self.counts.set_pairs(rows, cols, shape)

    def forward(
        self,
        left: Tensor,
        right: Tensor,
        rows: Tensor | None = None,
        cols: Tensor | None = None,
        left_index: Tensor | None = None,
        right_index: Tensor | None = None,
        *,
        labels: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Loss of a batch.

        Args:
            left: (B, D) floats; or one for each distinct entity, (U, D), with ``left_index``.
            right: Likewise, with ``right_index``.
            rows: (B,) left entities of the pairs.
            cols: (B,) right entities of the pairs; (B + C,) where a loss takes more.
            left_index: (B,) integers in ``[0, U)``: the embedding of each pair.
            right_index: Likewise, one for each of ``cols``.
            labels: One integer for each of ``cols``, where a loss takes them: right entities of the
                label of a pair are positives of it, too, -1 of no other pair.
            weight: Finite weights >= 0, one for each of ``cols``. One of 0 is absent, whatever it
                holds. None: all 1, also where other ranks have weights.
        """
        if labels is not None:
            self.check_takes_labels()
        if self.wants_pair_counts:
            self.counts.require()
        if rows is None or cols is None:
            what = 'rows and cols, the left and the right entity of each pair, are missing'
            raise UserTypeError(what, 'loss(left, right, rows, cols)')
        check_tensors(left=left, right=right, rows=rows, cols=cols)
        if weight is not None:
            weight = checked_weight('weight', weight, (len(cols),))
            weight = weight.to(left.device, non_blocking=True)
            pairs = rows, cols, left_index, right_index, labels
            rows, cols, left_index, right_index, labels = zero_absent(weight, pairs)
        _check_embeddings('left', left, left_index, len(rows))
        _check_embeddings('right', right, right_index, len(cols))
        if left.size(1) != right.size(1):
            what = 'left and right must be embeddings of one width'
            raise ValueError(f'{what}, got {left.size(1)} and {right.size(1)}')
        if labels is not None:
            labels = checked_labels(labels, len(cols)).to(left.device)
        given = left, right, rows, cols, left_index, right_index, labels, weight
        return self.loss_weight * self.batch_loss(PairBatch(*given))

    def check_takes_labels(self) -> None:
        """Refuse labels where other right entities cannot be positives of a pair."""
        if not self.takes_labels:
            what = f'{type(self).__name__} has the right entity of a pair as its only positive'
            raise UserError(what, 'leave labels= out, or mmrank.InBatchSoftmaxLoss()')

    def batch_loss(self, batch: PairBatch) -> Tensor:
        """Scalar loss of the pairs of all ranks, before ``loss_weight``."""
        raise NotImplementedError


def common_dtype(left: Tensor, right: Tensor) -> torch.dtype:
    """Dtype that holds the embeddings of both towers, at least float32."""
    return torch.promote_types(torch.promote_types(left.dtype, right.dtype), torch.float32)


def _check_embeddings(name: str, rows: Tensor, index: Tensor | None, num_pairs: int) -> None:
    """Check the (U, D) embeddings of B pairs, and the (B,) row of each if there is an ``index``."""
    if rows.dim() != 2 or not rows.is_floating_point():
        raise ValueError(
            f'{name} must be a matrix of floats, got {tuple(rows.shape)} of {rows.dtype}'
        )
    if index is not None:
        fix = f'one row of {name} for each pair'
        check_index(f'{name}_index', index, len(rows), fix, shape=(num_pairs,))
    elif len(rows) != num_pairs:
        what = f'{name} has {len(rows)} embeddings for {num_pairs} pairs'
        raise ValueError(f'{what}; with one for each distinct entity pass {name}_index')
