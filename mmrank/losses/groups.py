"""Lists that a loss gets by ``group=``, which are of unlike lengths."""

from collections.abc import Iterator

import torch
from torch import Tensor

from mmrank.errors import UserError
from mmrank.tensors import check_tensors, refuse_nan, size_levels

#: Entries of a padded matrix up to which lists of unlike lengths share one.
_SHARED_ENTRIES = 2**16


def _group_index(group: Tensor, in_parts: bool = True) -> list[tuple[Tensor, Tensor]]:
    """(L, N) rows of each value of (n,) group ids, padded with 0, and (L, N) mask of the rows.

    There is one such pair for all lists, or ``in_parts``, where much of it would be padding, one
    for the lists of 1, 2, 3 to 4, 5 to 8, ... rows: at most half of each is padding. ValueError if
    an id is NaN, which is equal to no other.
    """
    refuse_nan('group', group, 'give each score the number of its list')
    _, group, sizes = group.unique(return_inverse=True, return_counts=True)
    if not len(sizes):
        empty = group.new_zeros(1, 0)
        return [(empty, empty.bool())]
    order = group.argsort(stable=True)
    first = sizes.cumsum(0) - sizes
    level = size_levels(sizes)
    is_small = len(sizes) * int(sizes.max()) <= max(_SHARED_ENTRIES, 2 * len(group))
    if is_small or not in_parts:
        level = torch.zeros_like(level)
    parts = []
    for one in level.unique():
        lists = (level == one).nonzero()
        place = torch.arange(int(sizes[lists].max()), device=group.device)
        mask = place < sizes[lists]
        rows = torch.where(mask, first[lists] + place, 0)
        parts.append((torch.where(mask, order[rows], 0), mask))
    return parts


def refuse_rows_of_levels(cls_score: Tensor, target: Tensor) -> None:
    """UserError for (n, C) levels: a row is a list of its own elsewhere, and would not be here."""
    if target.dim() == 2 and target.size(1) > 1 and target.shape == cls_score.shape:
        raise UserError(
            f'target of shape {tuple(target.shape)} may be a list in each row, or one list. Fix: '
            'loss(cls_score, target, group=torch.arange(len(target))) for a list in each row, '
            'loss(cls_score.flatten(), target.flatten()) for one list; '
            f"num_classes={target.size(1)} of classes in one list, mode='per_class' for a list of "
            'each'
        )


def check_groups(
    scores: Tensor, target: Tensor, weight: Tensor | None, group: Tensor
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """(n,) scores, labels, weights and numbers of lists; else TypeError or UserError.

    A group of (n,) numbers with (n, C) scores and labels has a number for each row, whose entries
    are in that list.
    """
    check_tensors(cls_score=scores, target=target, weight=weight, group=group)
    is_of_rows = group.shape == scores.shape[:1] and target.shape == scores.shape
    if scores.dim() == 2 and is_of_rows:
        if weight is not None and weight.dim() == 1:
            weight = weight[:, None].expand(scores.shape)
        weight = None if weight is None else weight.reshape(-1)
        group = group.repeat_interleave(scores.size(1))
        return scores.reshape(-1), target.reshape(-1), weight, group
    if scores.dim() != 1 or group.shape != scores.shape:
        raise UserError(
            'group must be (n,), one number for each of (n,) scores or for each row of (n, C) '
            f'scores with (n, C) labels, got {tuple(group.shape)} for scores of shape '
            f'{tuple(scores.shape)} and labels of shape {tuple(target.shape)}. Fix: of padded '
            '(lists, N) scores loss(scores[mask], labels[mask], group=mask.nonzero()[:, 0])'
        )
    return scores, target, weight, group


def entries_of_groups(
    scores: Tensor,
    is_positive: Tensor,
    is_negative: Tensor,
    row_values: Tensor | None,
    weight: Tensor | None,
    group: Tensor,
    in_parts: bool,
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor, Tensor | None]]:
    """Yield scores, positives, negatives, values, classes and weights of the lists of each group.

    All are (1, n), ``group`` is (n,). See :func:`_group_index` for the parts. All lists are of one
    class.
    """
    for index, mask in _group_index(group, in_parts):
        values = None if row_values is None else row_values[0][index]
        own_weight = None if weight is None else weight[0][index]
        one_class = index.new_zeros(len(index))
        positives = is_positive[0][index] & mask
        negatives = is_negative[0][index] & mask
        yield scores[0][index], positives, negatives, values, one_class, own_weight
