"""Scores that are lists already, as the functions of the public API get them."""

import torch
from torch import Tensor

from mmrank.errors import UserError
from mmrank.tensors import check_floats, check_tensors, checked_weight, zeros_and_ones

from .lists import ListSettings, RankedLists, both_sides, counted_and_weight, ranked_lists


def split_lists(
    scores: Tensor, is_positive: Tensor, mask: Tensor | None = None, values: Tensor | None = None
) -> RankedLists:
    """Positives and negatives of each list; the last dimension is the list.

    A function that is called with them returns a scalar for (N,) scores, else (L,) losses, >= 0, at
    least float32; 0, still attached to the graph, for a list without positives.

    Args:
        scores: (N,) scores of one list, or (L, N) of L lists, any float dtype.
        is_positive: Same shape; bool, or 0 and 1 at the positives.
        mask: Same shape; bool, False at entries to ignore, such as the query itself, or weights >=
            0: an entry of weight w counts as w entries. None: all count once.
        values: Same shape; numbers that are read at the positives, such as the IoU of a box.
    """
    check_floats(scores=scores)
    check_tensors(is_positive=is_positive, mask=mask, values=values)
    if scores.dim() not in (1, 2):
        what = f'scores must be (scores,) or (lists, scores), got shape {tuple(scores.shape)}'
        raise UserError(what, 'scores.flatten() and is_positive.flatten() for one list of all')
    for name, other in (('is_positive', is_positive), ('mask', mask), ('values', values)):
        if other is not None and other.shape != scores.shape:
            raise UserError(
                f'{name} must have shape {tuple(scores.shape)} as scores has, got '
                f'{tuple(other.shape)}. Fix: pass all scores of a list together, '
                'X(scores, is_positive), not its positives and negatives'
            )
    fix = 'is_positive > 0 if these are positives, and mask=... to leave scores out'
    is_positive = zeros_and_ones('is_positive', is_positive, fix)
    counted = weight = None
    if mask is not None:
        counted, weight = counted_and_weight(checked_weight('mask', mask, scores.shape))
    entries: list = [scores, *both_sides(is_positive, counted), values, None, weight]
    if scores.dim() == 1:
        entries = [None if x is None else x[None] for x in entries]
    return ranked_lists(ListSettings(), *entries)


def like_scores(values: Tensor, scores: Tensor) -> Tensor:
    """(L, ...) float64 values of lists in the form of ``scores``: one for 1-D, at least float32."""
    values = values.to(torch.promote_types(scores.dtype, torch.float32))
    return values[0] if scores.dim() == 1 else values
