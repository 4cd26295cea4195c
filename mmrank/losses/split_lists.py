"""Lists of the functional forms: scores, positives and a mask of the same shape."""

import torch
from torch import Tensor

from mmrank.errors import UserError
from mmrank.losses.lists import RankedLists, positive_index
from mmrank.tensors import check_floats, check_tensors, zeros_and_ones


def split_lists(
    scores: Tensor, is_positive: Tensor, mask: Tensor | None = None, values: Tensor | None = None
) -> RankedLists:
    """Positives and negatives of each list; the last dimension is the list.

    Every function of this form raises these errors, and ValueError for a setting out of its range.

    Args:
        scores: (N,) scores of one list, or (L, N) of L lists, any float dtype.
        is_positive: Same shape; bool, or 0 and 1 at the positives.
        mask: Same shape, False or 0 at entries to ignore, such as the query itself. None: all
            count.
        values: Same shape; numbers that are read at the positives, such as the IoU of a box.

    Raises:
        ValueError: If shapes do not fit, or ``is_positive`` or ``mask`` has other numbers.
        TypeError: If the scores are not of a float dtype.
    """
    check_floats(scores=scores)
    check_tensors(is_positive=is_positive, mask=mask, values=values)
    if scores.dim() not in (1, 2):
        raise ValueError(
            f'scores must be (scores,) or (lists, scores), got shape {tuple(scores.shape)}'
        )
    for name, other in (('is_positive', is_positive), ('mask', mask), ('values', values)):
        if other is not None and other.shape != scores.shape:
            raise UserError(
                f'{name} must have shape {tuple(scores.shape)} as scores has, got '
                f'{tuple(other.shape)}. Fix: pass all scores of a list together, '
                'X(scores, is_positive), not its positives and negatives'
            )
    fix = 'is_positive > 0 if these are positives, and mask=... to leave scores out'
    is_positive = zeros_and_ones('is_positive', is_positive, fix)
    is_negative = ~is_positive
    if mask is not None:
        mask = zeros_and_ones('mask', mask, 'True where a score counts, False where it does not')
        is_positive = is_positive & mask
        is_negative = is_negative & mask
    if scores.dim() == 1:
        scores = scores[None]
        is_positive = is_positive[None]
        is_negative = is_negative[None]
        values = None if values is None else values[None]
    index, pos_mask = positive_index(is_positive)
    if values is not None:
        values = torch.where(pos_mask, values.gather(1, index), 0)
    pos = scores.gather(1, index)
    return RankedLists(pos, pos_mask, scores, is_positive, is_negative, values)


def like_scores(values: Tensor, scores: Tensor) -> Tensor:
    """(L, ...) float64 values of lists in the form of ``scores``: one for 1-D, at least float32."""
    values = values.to(torch.promote_types(scores.dtype, torch.float32))
    return values[0] if scores.dim() == 1 else values
