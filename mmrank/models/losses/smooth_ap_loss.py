"""SmoothAP as a registered loss."""

import torch
from torch import Tensor

from mmrank.functional.smooth_ap import smooth_ap_padded
from mmrank.functional.surrogates import Sigmoid
from mmrank.registry import MODELS

from .ranked_lists import RankedLists
from .ranking_loss import RankingLoss


@MODELS.register_module()
class SmoothAPLoss(RankingLoss):
    """Average precision with sigmoids for the ranks.

    The query itself is no part of its own list; the authors' code counts it
    as a positive on the first rank. Source: Brown et al., Smooth-AP:
    Smoothing the Path Towards Large-Scale Image Retrieval, ECCV 2020.

    Args:
        tau: Temperature in units of the (activated) scores, > 0. The paper's
            0.01 is for cosines; beyond a few tau a pair has no gradient.
        **kwargs: ``num_classes``, ``mode`` (``flatten`` or ``per_class``),
            ``reduction``, ``activation``, ``scope`` (``global`` or
            ``local``), ``loss_weight`` and ``use_sigmoid`` of
            :class:`mmrank.models.losses.RankingLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(self, tau: float = 0.01, **kwargs) -> None:
        super().__init__(**kwargs)
        self.tau = Sigmoid(tau).tau

    def list_losses(self, lists: RankedLists) -> Tensor:
        """SmoothAP of the lists, reduced."""
        losses = smooth_ap_padded(
            lists.pos,
            lists.scores,
            tau=self.tau,
            pos_mask=lists.pos_mask,
            neg_mask=lists.neg_mask,
            group=lists.group,
        )
        self.diagnostics = {'num_positive': lists.pos_mask.sum()}
        loss = self.reduce_lists(losses, lists.pos_mask.any(1))
        return loss.to(torch.promote_types(lists.pos.dtype, torch.float32))
