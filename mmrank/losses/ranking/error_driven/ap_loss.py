"""AP-Loss as a registered loss."""

from torch import Tensor

from mmrank.functional.ranking.error_driven.ap_loss import error_driven_ap
from mmrank.losses.ranking.ranking_loss import RankedLists

from .error_driven_loss import ErrorDrivenLoss


class APLoss(ErrorDrivenLoss):
    """AP-Loss with interpolated precision.

    Source: Chen et al., Towards Accurate One-Stage Object Detection with AP-Loss, CVPR 2019.

    Args:
        delta: Half width of the step in units of the logits, > 0.
        interpolate: Use the interpolated precision, as the paper does.
        momentum: Weight of the new batch in the mean positive logit, which centres the scores shown
            at test time.
        **kwargs: ``num_classes``, ``mode`` (``flatten`` or ``per_class``), ``reduction``, ``scope``
            (``global`` or ``local``),
            ``loss_weight`` and ``use_sigmoid`` of
            :class:`mmrank.losses.RankingLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self, delta: float = 1.0, interpolate: bool = True, momentum: float = 0.01, **kwargs
    ) -> None:
        super().__init__(delta, momentum, **kwargs)
        self.interpolate = interpolate

    def evaluate(self, lists: RankedLists) -> Tensor:
        """AP-Loss of the lists, reduced."""
        losses = error_driven_ap(
            lists.pos,
            lists.scores,
            delta=self.delta,
            interpolate=self.interpolate,
            pos_mask=lists.pos_mask,
            neg_mask=lists.neg_mask,
            group=lists.group,
        )
        return self.reduce_lists(losses, lists.pos_mask.any(1))
