"""Average localisation-recall-precision (aLRP) loss."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmrank.losses.lists import RankedLists
from mmrank.losses.plain_lists import like_scores
from mmrank.settings import check_count, check_positive
from mmrank.state import SelfBalance

from .error_driven import ErrorDrivenLoss, RankCounts, target_lists

# Number of false positives below which the paper makes no update.
_EPS = 1e-5


class ALRP(NamedTuple):
    """The two parts of aLRP; their sum is the loss."""

    #: Mean ``N_FP(i) / rank(i)``; it has the gradient of the scores.
    classification: Tensor
    #: Mean ranking-weighted box error; it has the gradient of the box errors.
    localisation: Tensor


def alrp_loss(
    logits: Tensor,
    targets: Tensor,
    box_errors: Tensor,
    *,
    mask: Tensor | None = None,
    delta: float = 1.0,
) -> ALRP:
    """ALRP of each list.

    ``mean_i (N_FP(i) + E_i + sum_{k != i} E_k H(s_k - s_i)) / rank(i)``. Source: Oksuz et al., A
    Ranking-based, Balanced Loss Function Unifying Classification and Localisation in Object
    Detection, NeurIPS 2020, eqs. 6 to 9.

    See :func:`ap_loss` for the lists and ``delta``. ``box_errors`` have the shape of the logits:
    localisation errors E, read at the positives; in [0, 1] by the paper: ``1 - IoU`` over ``1 -
    0.5``, or half the GIoU loss. The gradient of the scores is the paper's update for the error of
    both parts together; the weights of the box errors are constants.

    Example:
        >>> alrp_loss(torch.tensor([2.0, 0.0, -3.0]), torch.tensor([0, 1, 0]),
        ...           torch.tensor([0.0, 0.4, 0.0]))
        ALRP(classification=tensor(0.5000), localisation=tensor(0.2000))
    """
    check_positive(delta=delta)
    scores, boxes = _alrp(target_lists(logits, targets, mask, box_errors), delta)
    return ALRP(like_scores(scores, logits), like_scores(boxes, logits))


def _alrp(lists: RankedLists, delta: float) -> tuple[Tensor, Tensor]:
    mask = lists.pos_mask
    counts = RankCounts(lists, delta)
    rank = 1 + counts.positives + counts.false_positives
    inverse = torch.where(mask, 1 / rank, 0)
    box_errors = torch.where(mask, lists.required_values().double(), 0)
    with torch.no_grad():
        # H(x) + H(-x) = 1 turns the sum over what is above i into what the transpose gives, H(0) =
        # 1/2 takes i itself out.
        weighted = counts.number * box_errors
        below = counts.spread_over_positives(weighted)
        above = weighted.sum(1, keepdim=True) - below - 0.5 * box_errors
        error = (counts.false_positives + above.clamp(min=0)) * inverse
        # Weight of E_k: 1/rank(k) + sum_{i != k} H(s_k - s_i)/rank(i).
        share = counts.spread_over_positives(counts.number * inverse) + 0.5 * inverse
        share = torch.where(mask, counts.number * share, 0)
    classification = counts.loss(error, counts.false_positives * inverse, _EPS)
    localisation = (share * box_errors).sum(1) / counts.total
    return classification, localisation


class ALRPLoss(ErrorDrivenLoss):
    """:func:`mmrank.functional.alrp_loss` of a batch, with self-balancing.

    Takes the place of the classification and the box loss of ``mmrank.ListwiseHead`` or
    ``mmrank.ListwiseBBoxHead``, whose own ``loss_bbox`` computes the error of each positive's box.
    The paper has it in [0, 1]: use ``GIoULoss(loss_weight=0.5)`` on decoded boxes.

    Args:
        balance_period: Iterations after which the ratio is updated; set it to the iterations of an
            epoch of your data.
    """

    box_input = 'loss'
    fixed_settings = ('delta',)
    cost = 'scores'

    def __init__(self, balance_period: int = 3665, **kwargs) -> None:
        super().__init__(delta=1.0, **kwargs)
        check_count('balance_period', balance_period)
        self.balance = SelfBalance(period=balance_period)

    def losses(self, lists: RankedLists) -> dict[str, Tensor]:
        classification, localisation = _alrp(lists, self.delta)
        return dict(loss_cls=classification, loss_bbox=localisation)

    def total(self, losses, counted, parts) -> dict[str, Tensor]:
        loss_cls = self.reduce_lists(losses['loss_cls'], counted)
        loss_bbox = self.reduce_lists(losses['loss_bbox'], counted)
        ratio = self.balance.update(loss_cls, loss_bbox, parts[0].state_group)
        self.diagnostics['box_balance'] = ratio.detach()
        return dict(loss_cls=loss_cls, loss_bbox=loss_bbox * ratio)
