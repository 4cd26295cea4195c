"""Lists that a loss gets by ``group=``, which are of unlike lengths."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmrank.errors import UserError
from mmrank.losses.lists import RankedLists
from mmrank.tensors import check_tensors, refuse_nan, size_levels

#: Entries of a padded matrix up to which lists of unlike lengths share one.
_SHARED_ENTRIES = 2**16


def group_index(group: Tensor) -> list[tuple[Tensor, Tensor]]:
    """(L, N) rows of each value of (n,) group ids, padded with 0, and (L, N) mask of the rows.

    There is one such pair for all lists, or where much of it would be padding one for the lists of
    1, 2, 3 to 4, 5 to 8, ... rows: at most half of each is padding. ValueError if an id is NaN,
    which is equal to no other.
    """
    refuse_nan('group', group, 'give each score the number of its list')
    _, group, sizes = group.unique(return_inverse=True, return_counts=True)
    if not len(sizes):
        empty = group.new_zeros(1, 0)
        return [(empty, empty.bool())]
    order = group.argsort(stable=True)
    first = sizes.cumsum(0) - sizes
    level = size_levels(sizes)
    if len(sizes) * int(sizes.max()) <= max(_SHARED_ENTRIES, 2 * len(group)):
        level = torch.zeros_like(level)
    parts = []
    for one in level.unique():
        lists = (level == one).nonzero()
        place = torch.arange(int(sizes[lists].max()), device=group.device)
        mask = place < sizes[lists]
        rows = torch.where(mask, first[lists] + place, 0)
        parts.append((torch.where(mask, order[rows], 0), mask))
    return parts


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


def group_lists(
    ranked_lists: Callable[..., RankedLists],
    lists: tuple[Tensor, Tensor, Tensor],
    group: Tensor,
    row_values: Tensor | None,
) -> list[RankedLists]:
    """Lists of each value of ``group``, in parts of like lengths.

    ``ranked_lists`` makes them of (1, n) scores, positives and negatives; ``row_values`` are (1, n)
    as well.
    """
    parts = []
    for index, mask in group_index(group):
        scores, is_positive, is_negative = lists
        is_positive = is_positive[0][index] & mask
        is_negative = is_negative[0][index] & mask
        values = None if row_values is None else row_values[0][index]
        first = index.new_zeros(len(index))
        parts.append(
            ranked_lists(scores[0][index], is_positive, is_negative, values, list_classes=first)
        )
    return parts


def padded(parts: Sequence[RankedLists]) -> RankedLists:
    """The parts of :func:`group_lists`, which are of one process, in one padded matrix."""

    def rows(name: str) -> Tensor | None:
        tensors = [getattr(lists, name) for lists in parts]
        if tensors[0] is None:
            return None
        width = max(x.size(1) for x in tensors)
        return torch.cat([pad(x, (0, width - x.size(1))) for x in tensors])

    fields = ('pos', 'pos_mask', 'scores', 'is_positive', 'is_negative', 'values')
    joined = {name: rows(name) for name in fields}
    list_classes = torch.cat([lists.list_classes for lists in parts])
    return replace(parts[0], **joined, list_classes=list_classes)
