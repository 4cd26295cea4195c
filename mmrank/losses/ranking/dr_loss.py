"""DR loss as a registered loss."""

import torch
from torch import Tensor

from mmrank.functional.ranking.dr_loss import NEG_LAMBDA, POS_LAMBDA, distributional_ranking

from .ranking_loss import PaddedLoss, RankedLists


class DRLoss(PaddedLoss):
    """Distributional ranking of the sigmoid scores.

    Scores are probabilities with a fixed margin, so they need no centring at test time. Source:
    Qian et al., DR Loss: Improving Object Detection by Distributional Ranking, CVPR 2020.

    Args:
        pos_lambda: Temperature of the positives, > 0.
        neg_lambda: Temperature of the negatives, > 0.
        margin: Margin between positives and negatives, in probability.
        sharpness: L of the smoothed hinge, > 0.
        scale: Factor of the smoothed hinge (the authors' tau), > 0.
        **kwargs: ``num_classes``, ``mode``, ``reduction``, ``scope``, ``loss_weight`` and
            ``use_sigmoid`` of
            :class:`mmrank.losses.RankingLoss`. The mean of
            ``per_class`` is over all classes: those without a positive still push their negatives
            down.

    Raises:
        ValueError: On a parameter out of range.
    """

    ignores_empty_lists = False
    function = staticmethod(distributional_ranking)

    def __init__(
        self,
        pos_lambda: float = POS_LAMBDA,
        neg_lambda: float = NEG_LAMBDA,
        margin: float = 0.5,
        sharpness: float = 6.0,
        scale: float = 4.0,
        **kwargs,
    ) -> None:
        settings = dict(
            pos_lambda=pos_lambda,
            neg_lambda=neg_lambda,
            margin=margin,
            sharpness=sharpness,
            scale=scale,
        )
        super().__init__(settings, activation='sigmoid', **kwargs)

    def counted(self, lists: RankedLists) -> Tensor:
        """All lists: one without a positive has a loss, too."""
        return torch.ones_like(lists.pos_mask.any(1))
