"""Positives and negatives of lists, and the forms that users call.

A loss is written once, for padded positives and masked negatives, as the
registered losses call it. :func:`of_score_lists` and :func:`of_one_list` give
it the form for a score matrix and the form for a single list.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor


def positive_index(is_positive: Tensor) -> tuple[Tensor, Tensor]:
    """Columns of the positives of each list, padded to the longest list.

    Args:
        is_positive: (L, N) bool.

    Returns:
        (L, P) int64 columns, ascending, 0 at padding, and (L, P) bool mask
        that is False at padding; P is the largest number of positives.
    """
    lists, columns = is_positive.nonzero(as_tuple=True)
    if is_positive.size(0) == 1:
        # The number of positives is known: no second wait for the device.
        index = columns.unsqueeze(0)
        return index, torch.ones_like(index, dtype=torch.bool)
    # Not by bincount, which makes the host wait for the device.
    counts = lists.new_zeros(is_positive.size(0))
    counts.scatter_add_(0, lists, torch.ones_like(lists))
    width = int(counts.max()) if lists.numel() else 0
    first = counts.cumsum(0) - counts
    slot = torch.arange(lists.numel(), device=lists.device) - first[lists]
    index = lists.new_zeros(is_positive.size(0), width)
    index[lists, slot] = columns
    mask = torch.zeros_like(index, dtype=torch.bool)
    mask[lists, slot] = True
    return index, mask


def gather_positives(
    scores: Tensor, is_positive: Tensor
) -> tuple[Tensor, Tensor]:
    """Positives of each list, padded to the longest list.

    Args:
        scores: (L, N) scores.
        is_positive: (L, N) bool.

    Returns:
        (L, P) scores, differentiable in ``scores``, and (L, P) bool mask that
        is False at padding; P is the largest number of positives.
    """
    index, mask = positive_index(is_positive)
    return scores.gather(1, index), mask


def count_negatives(
    neg: Tensor, neg_mask: Tensor | None = None, group=None
) -> Tensor:
    """Number of negatives of each list.

    Args:
        neg: (L, N) scores of the negatives.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        group: Process group over which the negatives are spread, or None.

    Returns:
        (L,) float64, the same on all ranks of the group.
    """
    if neg_mask is None:
        number = torch.full(
            neg.shape[:1], neg.size(1), dtype=torch.float64, device=neg.device
        )
    else:
        number = neg_mask.sum(1).double()
    if group is not None:
        dist.all_reduce(number, group=group)
    return number


def split_targets(
    logits: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One list as the pairwise functions take it.

    Args:
        logits: Float scores of any shape.
        targets: Same shape; > 0 positive, 0 negative, < 0 (or NaN) left out.

    Returns:
        (1, P) positives, (1, N) all scores, (1, N) bool mask of the negatives
        and (1, P) targets of the positives.

    Raises:
        ValueError: If the shapes differ.
        TypeError: If the logits are not of a float dtype.
    """
    if not logits.is_floating_point():
        raise TypeError(
            f'logits must be of a float dtype, got {logits.dtype}; call '
            'logits.float()'
        )
    if logits.shape != targets.shape:
        raise ValueError(
            'logits and targets must have one shape, got '
            f'{tuple(logits.shape)} and {tuple(targets.shape)}'
        )
    scores, targets = logits.reshape(1, -1), targets.reshape(1, -1)
    index, _ = positive_index(targets > 0)
    values = targets.gather(1, index)
    return scores.gather(1, index), scores, targets == 0, values


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
        mask: (L, N) bool, False for entries to ignore, or None.
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
