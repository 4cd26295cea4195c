"""Rank & Sort loss: positives above negatives, sorted by their quality."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmrank.functional.ranking.lists import ranking_function, score_lists, split_targets
from mmrank.losses.pairs.surrogates import clamp_infinite
from mmrank.losses.pairs.tables import column_blocks

from .update import error_driven_loss, fixed_gradient_loss, piecewise_linear_step, rank_counts

# Pairs of positives of one block, each a float64.
_PAIRS_PER_BLOCK = 2**20


class RankSort(NamedTuple):
    """The two parts of Rank & Sort; their sum is the loss.

    Attributes:
        ranking: Mean ``N_FP(i) / rank(i)``.
        sorting: Mean excess of ``1 - quality`` above a positive over what is there when the
            positives are sorted by quality.
    """

    ranking: Tensor
    sorting: Tensor


@torch.no_grad()
def _sorting(pos: Tensor, pos_mask: Tensor, quality: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """Sorting errors of the positives and the gradient of their sum.

    The relation of two positives depends on score and quality at once, so
    this goes over the pairs of positives, in blocks of rows.
    """
    pos = clamp_infinite(pos.double())
    quality = quality.double()
    errors, grad = torch.zeros_like(pos), torch.zeros_like(pos)
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


@ranking_function(of_positives=['quality'])
def error_driven_rank_sort(
    pos: Tensor,
    neg: Tensor,
    quality: Tensor,
    *,
    delta: float = 0.5,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    method: str = 'auto',
    group=None,
) -> RankSort:
    """Rank & Sort of positives above negatives.

    Source: Rank & Sort (ICCV 2021), eqs. 7 to 10, with the step H smoothed as there, so that a
    positive counts itself as ``H(0) = 1/2``.

    Args:
        pos: (P,) or padded (L, P) scores of the positives.
        neg: (N,) or (L, N) scores of the negatives.
        quality: Quality of the positives in [0, 1], such as the IoU of their boxes, of the shape of
            ``pos``; no gradient.
        delta: Half width of the step H in units of the scores, > 0.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        method: See :func:`pairwise_surrogate_sum`.
        group: Process group over which the negatives are spread; ``pos`` and ``quality`` must then
            be those of all ranks.

    Returns:
        Both parts, scalars or (L,) float64; 0 for a list without positives. Each carries the
        gradient of its own update and scales with the incoming gradient.

    Raises:
        ValueError: If ``delta`` is not > 0 or the shapes do not fit.
        TypeError: If a score tensor is not of a float dtype.
    """
    counts = rank_counts(pos, neg, delta, pos_mask, neg_mask, method, group)
    with torch.no_grad():
        rank = 0.5 + counts.positives + counts.false_positives
        error = torch.where(pos_mask, counts.false_positives / rank, 0)
        value = error.sum(1) / counts.num_pos
        errors, grad = _sorting(pos, pos_mask, quality, delta)
        scale = 1 / counts.num_pos
    ranking = error_driven_loss(pos, neg, value, error, counts)
    sorting = fixed_gradient_loss(pos, errors.sum(1) * scale, grad * scale.unsqueeze(1))
    return RankSort(ranking, sorting)


rank_sort_loss_lists = score_lists(error_driven_rank_sort, 'rank_sort_loss_lists')
"""``error_driven_rank_sort`` of each row of scores; see ``score_lists``."""


def rank_sort_loss(
    logits: Tensor, targets: Tensor, *, delta: float = 0.5, method: str = 'auto'
) -> RankSort:
    """Rank & Sort of one list.

    Source: Oksuz et al., Rank & Sort Loss for Object Detection and Instance Segmentation, ICCV
    2021.

    Args:
        logits: Float scores of any shape, all in one ranking.
        targets: Same shape; > 0 the quality (IoU) of a positive, 0 negative,
            < 0 left out.
        delta: Half width of the step in units of the scores, > 0.
        method: See :func:`pairwise_surrogate_sum`.

    Returns:
        Both parts as scalars, float64 for float64 logits, else float32; 0, still attached to the
        graph, when there is no positive.

    Raises:
        ValueError: If ``delta`` is not > 0 or the shapes differ.
        TypeError: If the logits are not of a float dtype.

    Example:
        >>> rank_sort_loss(torch.tensor([2.0, 0.0, 1.0]),
        ...                torch.tensor([0.6, 0.9, 0.0]))
        RankSort(ranking=tensor(0.2000), sorting=tensor(0.1000))
    """
    pos, neg, neg_mask, quality = split_targets(logits, targets)
    return error_driven_rank_sort(pos, neg, quality, delta=delta, neg_mask=neg_mask, method=method)
