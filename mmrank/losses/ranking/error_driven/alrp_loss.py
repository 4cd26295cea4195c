"""aLRP as a registered loss."""

from torch import Tensor

from mmrank.functional.ranking.error_driven.alrp_loss import error_driven_alrp
from mmrank.losses.ranking.ranking_loss import RankedLists
from mmrank.state import SelfBalance

from .error_driven_loss import ErrorDrivenLoss


class ALRPLoss(ErrorDrivenLoss):
    """Average localisation-recall-precision loss with self-balancing.

    Takes the place of the classification and the box loss of a head: the head's own ``loss_bbox``
    computes the error of each positive's box. The paper has it in [0, 1], so use
    ``GIoULoss(loss_weight=0.5)`` for
    ``(1 - GIoU)/2``, on decoded boxes. Needs ``mmrank.ListwiseHead`` or
    ``mmrank.ListwiseBBoxHead``. Source: Oksuz et al., A Ranking-based, Balanced Loss Function
    Unifying Classification and Localisation in Object Detection, NeurIPS 2020.

    Args:
        delta: Half width of the step in units of the logits, > 0.
        balance: Ratio by which the box part is multiplied in the first
            period; None turns self-balancing off.
        balance_period: Iterations after which the ratio is updated; set it
            to those of an epoch of your data.
        momentum: Weight of the new batch in the mean positive logit, which centres the scores shown
            at test time.
        **kwargs: ``num_classes``, ``mode``, ``reduction``, ``scope``, ``loss_weight`` and
            ``use_sigmoid`` of
            :class:`mmrank.losses.RankingLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    box_input = 'loss'

    def __init__(
        self,
        delta: float = 1.0,
        balance: float | None = 50.0,
        balance_period: int = 3665,
        momentum: float = 0.01,
        **kwargs,
    ) -> None:
        super().__init__(delta, momentum, **kwargs)
        self.balance = None if balance is None else SelfBalance(balance, balance_period)

    def evaluate(self, lists: RankedLists) -> dict[str, Tensor]:
        """Both parts of aLRP, reduced, the box part balanced."""
        parts = error_driven_alrp(
            lists.pos,
            lists.scores,
            lists.values,
            delta=self.delta,
            pos_mask=lists.pos_mask,
            neg_mask=lists.neg_mask,
            group=lists.group,
        )
        has_positive = lists.pos_mask.any(1)
        scores, boxes = (self.reduce_lists(p, has_positive) for p in parts)
        if self.balance is not None:
            ratio = self.balance.update(scores, boxes, lists.state_group)
            self.note(box_balance=ratio)
            boxes = boxes * ratio
        return dict(loss_cls=scores, loss_bbox=boxes)
