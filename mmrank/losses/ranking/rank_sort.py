"""Rank & Sort loss: positives above negatives, sorted by their quality."""

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.losses.lists import RankedLists
from mmrank.losses.pairs import given_gradient
from mmrank.losses.plain_lists import like_scores
from mmrank.settings import check_not_negative, check_positive

from .error_driven import ErrorDrivenLoss, RankCounts, positive_pairs, target_lists

# Divides what may be 0.
_TINY = torch.finfo(torch.float64).tiny


class RankSort(NamedTuple):
    """The two parts of Rank & Sort; their sum is the loss."""

    #: Mean ``N_FP(i) / rank(i)``.
    ranking: Tensor
    #: Mean excess of ``1 - quality`` above a positive over what is there when the positives are
    #: sorted by quality.
    sorting: Tensor


def rank_sort_loss(
    logits: Tensor, targets: Tensor, *, mask: Tensor | None = None, delta: float = 0.5
) -> RankSort:
    """Rank & Sort of each list.

    Source: Oksuz et al., Rank & Sort Loss for Object Detection and Instance Segmentation, ICCV
    2021, eqs. 7 to 10, with the step H smoothed as there, so that a positive counts itself as
    ``H(0) = 1/2``.

    See :func:`ap_loss` for the lists and ``delta``. The target of a positive is its quality (IoU).
    Each part has the gradient of its own update.

    Example:
        >>> rank_sort_loss(torch.tensor([2.0, 0.0, 1.0]), torch.tensor([0.6, 0.9, 0.0]))
        RankSort(ranking=tensor(0.2000), sorting=tensor(0.1000))
    """
    check_positive(delta=delta)
    ranking, sorting = _rank_sort(target_lists(logits, targets, mask, targets), delta)
    return RankSort(like_scores(ranking, logits), like_scores(sorting, logits))


def _rank_sort(lists: RankedLists, delta: float) -> tuple[Tensor, Tensor]:
    counts = RankCounts(lists, delta)
    rank = 0.5 + counts.positives + counts.false_positives
    ranking = counts.loss(torch.where(lists.pos_mask, counts.false_positives / rank, 0))
    errors, grad = _sorting(lists, lists.required_values().detach().double(), delta)
    errors = (counts.number * errors).sum(1)
    grad = grad / counts.total.unsqueeze(1)
    return ranking, given_gradient(errors / counts.total, (lists.pos, grad))


@torch.no_grad()
def _sorting(lists: RankedLists, quality: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """(L, P) sorting errors of the positives and the gradient of their sum."""
    mask = lists.pos_mask
    number = lists.positives.double()
    errors = torch.zeros_like(quality)
    grad = torch.zeros_like(quality)
    cost = (1 - quality).unsqueeze(2)
    for part, gaps, above in positive_pairs(lists, quality, delta):
        above = torch.where(mask.unsqueeze(1), above, 0)
        if lists.pos_weight is not None:
            above *= lists.pos_weight.unsqueeze(1)
        missorted = torch.where(gaps > 0, above, 0)
        in_order = above - missorted
        # At padding there may be nothing above; a real positive has itself.
        current = torch.bmm(above, cost).squeeze(2) / above.sum(2).clamp(min=_TINY)
        target = torch.bmm(in_order, cost).squeeze(2) / in_order.sum(2).clamp(min=_TINY)
        error = torch.where(mask[:, part], current - target, 0)
        errors[:, part] = error
        # What is missorted above i shares the error of i.
        total = missorted.sum(2)
        error = torch.where(total > 0, number[:, part] * error, 0)
        share = (error / total.clamp(min=_TINY)).unsqueeze(1)
        grad += torch.bmm(share, missorted).squeeze(1)
        grad[:, part] -= error
    return errors, grad


@torch.no_grad()
def box_balance(loss_cls: Tensor, loss_bbox: Tensor, group=None) -> Tensor:
    """Weight of the box loss relative to a ranking loss, ``|L_cls / L_box|`` of two scalars.

    A float32 without gradient, from the losses' means over the ranks of a group; 1 where the box
    loss is 0 or the ratio is not finite. Source: Oksuz et al., Rank & Sort Loss, ICCV 2021,
    section 4.
    """
    losses = torch.stack([loss_cls.float(), loss_bbox.float()])
    if group is not None:
        # The mean over ranks; the number of ranks leaves the ratio as it is.
        dist.all_reduce(losses, group=group)
    ratio = (losses[0] / losses[1]).abs()
    return torch.where(ratio.isfinite() & (losses[1] != 0), ratio, 1.0)


def total_loss(loss: Tensor | Sequence[Tensor]) -> Tensor:
    """Scalar sum of a loss that a head reports whole or per level."""
    if isinstance(loss, Tensor):
        return loss.sum()
    return cast(Tensor, sum(part.sum() for part in loss))


def with_balanced_boxes(
    losses: dict, cls_keys: Sequence[str], box_keys: Sequence[str], group=None
) -> dict:
    """Copy the losses of a head, those of ``box_keys`` times their :func:`box_balance`."""
    of_cls = sum(total_loss(losses[key]) for key in cls_keys)
    of_box = sum(total_loss(losses[key]) for key in box_keys)
    ratio = box_balance(cast(Tensor, of_cls), cast(Tensor, of_box), group)
    balanced = dict(losses)
    for key in box_keys:
        loss = losses[key]
        per_level = isinstance(loss, (list, tuple))
        balanced[key] = [x * ratio for x in loss] if per_level else loss * ratio
    return balanced


class RankSortLoss(ErrorDrivenLoss):
    """:func:`mmrank.functional.rank_sort_loss` of a batch, sorted by the IoU of the boxes.

    Needs ``mmrank.ListwiseHead`` or ``mmrank.ListwiseBBoxHead``, which pass the IoUs; their
    ``balance_boxes=True`` is the paper's weighting of the box loss.

    Args:
        sort_weight: Weight of the sorting part relative to the ranking part, >= 0.
    """

    box_input = 'quality'

    def __init__(self, delta: float = 0.5, sort_weight: float = 1.0, **kwargs) -> None:
        super().__init__(delta, **kwargs)
        check_not_negative(sort_weight=sort_weight)
        self.sort_weight = sort_weight

    def losses(self, lists: RankedLists) -> dict[str, Tensor]:
        ranking, sorting = _rank_sort(lists, self.delta)
        return dict(ranking=ranking, sorting=sorting)

    def total(self, losses, counted, parts) -> Tensor:
        ranking = self.reduce_lists(losses['ranking'], counted)
        sorting = self.reduce_lists(losses['sorting'], counted)
        self.diagnostics.update(ranking=ranking.detach(), sorting=sorting.detach())
        return ranking + self.sort_weight * sorting
