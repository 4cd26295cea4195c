"""Rank & Sort loss: positives above negatives, sorted by their quality."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.checks import check_not_negative, check_positive
from mmrank.distributed import world_group
from mmrank.losses.lists import RankedLists, like_scores
from mmrank.losses.options import LogitOptions, Unpack
from mmrank.losses.pairs.surrogates import clamp_infinite
from mmrank.losses.pairs.tables import column_blocks
from mmrank.state.gradient_balance import GradientBalance, total_of, with_scaled

from .ap_loss import (
    ErrorDrivenLoss,
    error_driven_loss,
    fixed_gradient_loss,
    piecewise_linear_step,
    rank_counts,
    target_lists,
)

# Pairs of positives of one block, each a float64.
_PAIRS_PER_BLOCK = 2**20


class RankSort(NamedTuple):
    """The two parts of Rank & Sort; their sum is the loss."""

    ranking: Tensor  # mean ``N_FP(i) / rank(i)``
    #: Mean excess of ``1 - quality`` above a positive over what is there when the positives are
    #: sorted by quality.
    sorting: Tensor


def rank_sort_loss(logits: Tensor, targets: Tensor, *, delta: float = 0.5) -> RankSort:
    """Rank & Sort of each list.

    Source: Oksuz et al., Rank & Sort Loss for Object Detection and Instance Segmentation, ICCV
    2021, eqs. 7 to 10, with the step H smoothed as there, so that a positive counts itself as
    ``H(0) = 1/2``.

    See :func:`ap_loss` for the lists and ``delta``. The target of a positive is its quality (IoU).

    Returns:
        Both parts, scalars or (L,), at least float32; 0, still attached to the graph, for a list
        without positives. Each carries the gradient of its own update and scales with the incoming
        gradient.

    Example:
        >>> rank_sort_loss(torch.tensor([2.0, 0.0, 1.0]), torch.tensor([0.6, 0.9, 0.0]))
        RankSort(ranking=tensor(0.2000), sorting=tensor(0.1000))
    """
    check_positive(delta=delta)
    parts = _rank_sort(target_lists(logits, targets, targets), delta)
    return RankSort(*(like_scores(x, logits) for x in parts))


def _rank_sort(lists: RankedLists, delta: float) -> RankSort:
    """Parts of Rank & Sort; the values of the lists are the qualities."""
    counts = rank_counts(lists, delta)
    with torch.no_grad():
        rank = 0.5 + counts.positives + counts.false_positives
        error = torch.where(lists.pos_mask, counts.false_positives / rank, 0)
        value = error.sum(1) / counts.num_pos
        errors, grad = _sorting(lists.pos, lists.pos_mask, lists.required_values(), delta)
        scale = 1 / counts.num_pos
    ranking = error_driven_loss(lists, value, error, counts)
    sorting = fixed_gradient_loss(lists.pos, errors.sum(1) * scale, grad * scale.unsqueeze(1))
    return RankSort(ranking, sorting)


@torch.no_grad()
def _sorting(pos: Tensor, pos_mask: Tensor, quality: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """Sorting errors of the positives and the gradient of their sum.

    The relation of two positives depends on score and quality at once, so this goes over the pairs
    of positives, in blocks of rows.
    """
    pos = clamp_infinite(pos.double())
    quality = quality.double()
    errors = torch.zeros_like(pos)
    grad = torch.zeros_like(pos)
    rows = max(_PAIRS_PER_BLOCK // max(pos.numel(), 1), 1)
    for part in column_blocks(pos.size(1), rows):
        above = piecewise_linear_step(pos.unsqueeze(1) - pos[:, part].unsqueeze(2), delta)
        above = torch.where(pos_mask.unsqueeze(1), above, 0)
        worse = quality.unsqueeze(1) < quality[:, part].unsqueeze(2)
        missorted = torch.where(worse, above, 0)
        in_order = above - missorted
        cost = (1 - quality).unsqueeze(2)
        # At padding there may be nothing above; a real positive has itself.
        current = torch.bmm(above, cost).squeeze(2) / _at_least(above.sum(2))
        target = torch.bmm(in_order, cost).squeeze(2)
        target = target / _at_least(in_order.sum(2))
        error = torch.where(pos_mask[:, part], current - target, 0)
        errors[:, part] = error
        # What is missorted above i shares the error of i.
        total = missorted.sum(2)
        error = torch.where(total > 0, error, 0)
        share = (error / _at_least(total)).unsqueeze(1)
        grad += torch.bmm(share, missorted).squeeze(1)
        grad[:, part] -= error
    return errors, grad


def _at_least(total: Tensor) -> Tensor:
    return total.clamp(min=torch.finfo(total.dtype).tiny)


@torch.no_grad()
def box_balance(loss_cls: Tensor, loss_bbox: Tensor) -> Tensor:
    """Weight of the box loss relative to a ranking loss, ``|L_cls / L_box|`` of two scalars.

    A float32 without gradient, from the losses' means over the ranks; 1 where the box loss is 0
    or the ratio is not finite. Source: Oksuz et al., Rank & Sort Loss, ICCV 2021, section 4.
    """
    losses = torch.stack([loss_cls.float(), loss_bbox.float()])
    group = world_group()
    if group is not None:
        # The mean over ranks; the number of ranks leaves the ratio as it is.
        dist.all_reduce(losses, group=group)
    ratio = (losses[0] / losses[1]).abs()
    return torch.where(ratio.isfinite() & (losses[1] != 0), ratio, 1.0)


def balanced_parts(
    losses: dict,
    cls_keys: Sequence[str],
    box_keys: Sequence[str],
    balance_boxes: bool,
    gradient_balance: GradientBalance | None,
) -> dict:
    """Copy the losses of a head, one part scaled where the head's settings say so.

    ``balance_boxes`` multiplies the losses of ``box_keys`` by :func:`box_balance`, the other one
    scales the losses of ``cls_keys``.
    """
    if gradient_balance is not None:
        return gradient_balance.scaled(losses, cls_keys, box_keys)
    if not balance_boxes:
        return dict(losses)
    ratio = box_balance(total_of(losses, cls_keys), total_of(losses, box_keys))
    return with_scaled(losses, box_keys, ratio)


class RankSortLoss(ErrorDrivenLoss):
    """:func:`mmrank.functional.rank_sort_loss` of a batch, sorted by the IoU of the boxes.

    Needs ``mmrank.ListwiseHead`` or ``mmrank.ListwiseBBoxHead``, which pass the IoUs; their
    ``balance_boxes=True`` is the paper's weighting of the box loss.

    Args:
        delta: Half width of the step in units of the logits, > 0.
        sort_weight: Weight of the sorting part relative to the ranking part, >= 0.
        **kwargs: See :class:`mmrank.losses.RankingLoss`, except ``activation``.
    """

    box_input = 'quality'

    def __init__(
        self, delta: float = 0.5, sort_weight: float = 1.0, **kwargs: Unpack[LogitOptions]
    ) -> None:
        super().__init__(delta, **kwargs)
        check_not_negative(sort_weight=sort_weight)
        self.sort_weight = sort_weight

    def evaluate(self, lists: RankedLists) -> tuple[Tensor, ...]:
        """Ranking and sorting errors."""
        return _rank_sort(lists, self.delta)

    def combine(self, ranking: Tensor, sorting: Tensor, lists: RankedLists) -> Tensor:
        self.note(ranking=ranking, sorting=sorting)
        return ranking + self.sort_weight * sorting
