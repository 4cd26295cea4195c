"""List-wise AP (DIR) as a registered loss."""

import torch
from torch import Tensor

from mmrank.functional.listwise_ap import check_bins, listwise_ap_padded
from mmrank.registry import MODELS

from .ranked_lists import RankedLists
from .ranking_loss import RankingLoss


@MODELS.register_module()
class ListwiseAPLoss(RankingLoss):
    """Average precision of a soft histogram of the scores.

    Known as DIR. The query itself is no part of its own list. With
    ``num_bins=k + 1`` on cosines this is FastAP with k bins. Source: Revaud
    et al., Learning with Average Precision: Training Image Retrieval with a
    Listwise Loss, ICCV 2019.

    Args:
        num_bins: Number of bins, >= 2; the paper's 20.
        score_range: Range of the (activated) scores, the centres of the last
            and of the first bin. (-1, 1) is for cosines; a score outside has
            no gradient.
        **kwargs: ``num_classes``, ``mode`` (``flatten`` or ``per_class``),
            ``reduction``, ``activation``, ``scope`` (``global`` or
            ``local``), ``loss_weight`` and ``use_sigmoid`` of
            :class:`mmrank.models.losses.RankingLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        num_bins: int = 20,
        score_range: tuple[float, float] = (-1.0, 1.0),
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        check_bins(num_bins, score_range)
        self.num_bins, self.score_range = num_bins, tuple(score_range)

    def list_losses(self, lists: RankedLists) -> Tensor:
        """List-wise AP of the lists, reduced."""
        losses = listwise_ap_padded(
            lists.pos,
            lists.scores,
            num_bins=self.num_bins,
            score_range=self.score_range,
            pos_mask=lists.pos_mask,
            neg_mask=lists.neg_mask,
            group=lists.group,
        )
        self.diagnostics = {'num_positive': lists.pos_mask.sum()}
        loss = self.reduce_lists(losses, lists.pos_mask.any(1))
        return loss.to(torch.promote_types(lists.pos.dtype, torch.float32))
