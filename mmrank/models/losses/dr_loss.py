"""DR loss as a registered loss."""

import torch
from torch import Tensor

from mmrank.functional.dr_loss import (
    NEG_LAMBDA,
    POS_LAMBDA,
    dr_loss_lists,
)
from mmrank.registry import MODELS

from .ranked_lists import RankedLists
from .ranking_loss import RankingLoss


@MODELS.register_module()
class DRLoss(RankingLoss):
    """Distributional ranking of the sigmoid scores.

    Scores are probabilities with a fixed margin, so they need no centring at
    test time. Source: Qian et al., DR Loss: Improving Object Detection by
    Distributional Ranking, CVPR 2020.

    Args:
        pos_lambda: Temperature of the positives, > 0.
        neg_lambda: Temperature of the negatives, > 0.
        margin: Margin between positives and negatives, in probability.
        sharpness: L of the smoothed hinge, > 0.
        scale: Factor of the smoothed hinge (the authors' tau), > 0.
        **kwargs: ``num_classes``, ``mode``, ``reduction``, ``scope``,
            ``loss_weight`` and ``use_sigmoid`` of
            :class:`mmrank.models.losses.RankingLoss`. The mean of
            ``per_class`` is over all classes: those without a positive still
            push their negatives down.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        pos_lambda: float = POS_LAMBDA,
        neg_lambda: float = NEG_LAMBDA,
        margin: float = 0.5,
        sharpness: float = 6.0,
        scale: float = 4.0,
        **kwargs,
    ) -> None:
        super().__init__(activation='sigmoid', **kwargs)
        self.settings = dict(
            pos_lambda=pos_lambda,
            neg_lambda=neg_lambda,
            margin=margin,
            sharpness=sharpness,
            scale=scale,
        )
        # Refuse a bad setting before training starts.
        nothing = torch.zeros(1, 0)
        dr_loss_lists(nothing, nothing, **self.settings)

    def list_losses(self, lists: RankedLists) -> Tensor:
        """DR loss of the lists, reduced."""
        losses = dr_loss_lists(
            lists.pos,
            lists.scores,
            pos_mask=lists.pos_mask,
            neg_mask=lists.neg_mask,
            group=lists.group,
            **self.settings,
        )
        self.diagnostics = {'num_positive': lists.pos_mask.sum()}
        loss = self.reduce_lists(losses, torch.ones_like(losses) > 0)
        return loss.to(torch.promote_types(lists.pos.dtype, torch.float32))
