"""Exact area under the ROC curve."""

import torch
from torch import Tensor

from .average_precision import check_list


def auroc(scores: Tensor, is_positive: Tensor) -> Tensor:
    """Exact area under the ROC curve of one list.

    The share of pairs of a positive and a negative in which the positive is
    higher; a tie counts one half. Two sorts, no matrix of pairs.

    Args:
        scores: (n,) float scores.
        is_positive: (n,) bool or integer labels, nonzero = positive.

    Returns:
        Scalar in [0, 1], float64 for float64 scores and float32 otherwise;
        NaN when the list has no positive or no negative, or a score is NaN.

    Raises:
        ValueError: If the shapes are not one and the same 1-D shape.
        TypeError: If the scores are not of a float dtype.

    Example:
        >>> auroc(torch.tensor([0.9, 0.8, 0.7, 0.7]),
        ...       torch.tensor([1, 0, 1, 0]))
        tensor(0.6250)
    """
    check_list(scores, is_positive)
    dtype = torch.promote_types(scores.dtype, torch.float32)
    scores, is_positive = scores.detach().to(dtype), is_positive.bool()
    pos, neg = scores[is_positive], scores[~is_positive].sort().values
    below = torch.searchsorted(neg, pos)
    not_above = torch.searchsorted(neg, pos, right=True)
    wins = (below + not_above).double().sum() / 2
    area = wins / (pos.numel() * neg.numel() or torch.nan)
    return torch.where(scores.isnan().any(), torch.nan, area).to(dtype)
