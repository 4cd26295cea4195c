"""The positives of each list, gathered and padded; the negatives, counted."""

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
