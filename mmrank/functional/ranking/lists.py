"""The two ways in which users call a listwise loss.

A loss is written once, for padded positives and masked negatives, as the
registered losses call it. These give it the form for a score matrix and the
form for a single list.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .positives import gather_positives


def of_score_lists(
    padded: Callable[..., Tensor],
    scores: Tensor,
    is_positive: Tensor,
    mask: Tensor | None,
    **settings,
) -> Tensor:
    """Loss of each row of a score matrix.

    Args:
        padded: Loss of (L, P) positives and (L, N) scores with ``pos_mask``
            and ``neg_mask``, as :func:`smooth_ap_padded`.
        scores: (L, N) float scores.
        is_positive: (L, N) bool or integer, nonzero = positive of its list.
        mask: (L, N) bool, False for entries that take no part, or None.
        **settings: Passed on.

    Returns:
        (L,) losses, float64 for float64 scores, else float32.

    Raises:
        ValueError: If the shapes differ.
        TypeError: If the scores are not of a float dtype.
    """
    if scores.dim() != 2 or scores.shape != is_positive.shape:
        raise ValueError(
            'scores and is_positive must be (lists, scores) of one shape, got '
            f'{tuple(scores.shape)} and {tuple(is_positive.shape)}'
        )
    if mask is not None and mask.shape != scores.shape:
        raise ValueError(
            f'mask must have shape {tuple(scores.shape)}, got '
            f'{tuple(mask.shape)}'
        )
    is_positive = is_positive.bool()
    neg_mask = ~is_positive
    if mask is not None:
        is_positive, neg_mask = is_positive & mask, neg_mask & mask
    pos, pos_mask = gather_positives(scores, is_positive)
    loss = padded(
        pos, scores, pos_mask=pos_mask, neg_mask=neg_mask, **settings
    )
    return loss.to(torch.promote_types(scores.dtype, torch.float32))


def of_one_list(
    padded: Callable[..., Tensor], pos: Tensor, neg: Tensor, **settings
) -> Tensor:
    """Loss of one list.

    Args:
        padded: See :func:`of_score_lists`.
        pos: (n+,) float scores of the positives.
        neg: (n-,) float scores of the negatives.
        **settings: Passed on.

    Returns:
        Scalar, float64 if an input is, else float32.

    Raises:
        ValueError: If an input is not 1-D.
        TypeError: If a score tensor is not of a float dtype.
    """
    if pos.dim() != 1 or neg.dim() != 1:
        raise ValueError(
            'pos and neg must be 1-D, got shapes '
            f'{tuple(pos.shape)} and {tuple(neg.shape)}'
        )
    dtype = torch.promote_types(
        torch.promote_types(pos.dtype, neg.dtype), torch.float32
    )
    return padded(pos[None], neg[None], **settings)[0].to(dtype)
