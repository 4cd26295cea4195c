"""Base of ranking losses with a history of each positive."""

from typing import cast

import torch
from torch import Tensor

from mmrank.distributed import all_gather_lists
from mmrank.errors import UserTypeError
from mmrank.losses.base import RankingLoss
from mmrank.losses.lists import RankedLists
from mmrank.state.positive_history import PositiveState
from mmrank.tensors import check_tensors


class HistoryLoss(RankingLoss):
    """Loss of a classifier whose lists have as values the indices of their positives in a history.

    The history is saved and the same on all ranks. With ``scope='global'`` it is a single
    process's, with ``scope='local'`` each rank ranks the positives that it has.
    """

    zero_without_positives = True
    keeps_samples = True
    no_retrieval = 'keeps averages of the samples of a classifier'

    @property
    def history(self) -> PositiveState:
        """What is known of each positive from earlier batches."""
        raise NotImplementedError

    @property
    def num_samples(self) -> int:
        return self.history.num_samples

    def forward(
        self,
        cls_score: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | None = None,
        reduction_override: str | None = None,
        *,
        sample_idx: Tensor | None = None,
        **others: Tensor | None,
    ) -> Tensor:
        """See :meth:`HeadLoss.forward`; (n,) ``sample_idx`` are places in the training set."""
        if others:
            raise UserTypeError(
                f'{type(self).__name__} does not take {", ".join(others)}. Fix: leave it out'
            )
        check_tensors(sample_idx=sample_idx)
        cls_score, target, lists = self.called_lists(
            cls_score, target, weight, avg_factor, reduction_override
        )
        if sample_idx is None or sample_idx.shape != cls_score.shape[:1]:
            found = None if sample_idx is None else tuple(sample_idx.shape)
            raise ValueError(
                f'{type(self).__name__} needs sample_idx of shape ({len(cls_score)},), the '
                f'index of each row in the training set, got {found}; use '
                "mmrank.OneVsRestHead and keep 'sample_idx' in meta_keys of PackInputs"
            )
        index = self.history.index_of(sample_idx, cls_score.device)
        # float64 holds every index.
        losses = self.loss_of_lists(*lists, self.lists_of(index).double())
        return self.loss_weight * cast(Tensor, losses)

    @staticmethod
    def history_index(lists: RankedLists) -> Tensor:
        """(L, P) int64 indices of the positives in the history."""
        return lists.required_values().detach().long()

    def remember(self, batch: Tensor, lists: RankedLists) -> None:
        """Store (quantities, L, P) numbers of a batch; of all ranks, where others have theirs."""
        index = self.history_index(lists)
        mask = lists.pos_mask
        batch = batch.detach()
        if lists.state_group is not None:
            rows = torch.cat([index.double()[None], batch]).flatten(0, 1)
            rows, masks = all_gather_lists(rows, mask.repeat(1 + len(batch), 1), lists.state_group)
            joined = rows.view(1 + len(batch), len(mask), -1)
            mask = masks[: len(mask)]
            index = joined[0].long()
            batch = joined[1:]
        self.history.update(index, batch, mask)


def mean_of(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of the values that count."""
    return torch.where(mask, values, 0).sum() / mask.sum().clamp(min=1)
