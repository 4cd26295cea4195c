"""Exact average precision, the ranks it is made of, and area under ROC."""

import torch
from torch import Tensor


def count_at_or_above(queries: Tensor, scores: Tensor) -> Tensor:
    """Number of (m,) scores that are >= each of (n,) queries, (n,) int64, by one sort.

    This is ``sum_j l01(q_i - s_j)``: a tie counts as ranked above.
    """
    ordered = scores.sort().values
    below = torch.searchsorted(ordered, queries.contiguous(), right=False)
    return scores.numel() - below


def check_list(scores: Tensor, is_positive: Tensor) -> None:
    """Check that both are 1-D of one length, and that the scores are floats."""
    if scores.dim() != 1 or scores.shape != is_positive.shape:
        raise ValueError(
            'scores and is_positive must be 1-D of one length, got shapes '
            f'{tuple(scores.shape)} and {tuple(is_positive.shape)}'
        )
    if not scores.is_floating_point():
        raise TypeError(f'scores must be of a float dtype, got {scores.dtype}; call scores.float()')


def average_precision(scores: Tensor, is_positive: Tensor) -> Tensor:
    """Exact average precision of one list.

    ``AP = mean_i rank+_i / rank_i`` over the positives, where both ranks count a tie as ranked
    above (``l01(0) = 1``), so a positive that ties with negatives gets no credit for the order in
    which they happen to be sorted. ``1 - AP`` is the AP risk of stable AP (2025), section 3.

    Args:
        scores: (n,) float scores.
        is_positive: (n,) bool or integer labels, nonzero = positive.

    Returns:
        Scalar in [0, 1], float64 for float64 scores and float32 otherwise;
        NaN when the list has no positive or a score is NaN.

    Raises:
        ValueError: If the shapes are not one and the same 1-D shape.
        TypeError: If the scores are not of a float dtype.

    Example:
        >>> average_precision(torch.tensor([0.9, 0.8, 0.7]),
        ...                   torch.tensor([1, 0, 1]))
        tensor(0.8333)
    """
    check_list(scores, is_positive)
    dtype = torch.promote_types(scores.dtype, torch.float32)
    scores = scores.detach().to(dtype)
    pos = scores[is_positive.bool()]
    above = count_at_or_above(pos, scores)
    above_pos = count_at_or_above(pos, pos)
    ap = (above_pos.double() / above.double()).mean()
    return torch.where(scores.isnan().any(), ap.new_tensor(float('nan')), ap).to(dtype)


def auroc(scores: Tensor, is_positive: Tensor) -> Tensor:
    """Exact area under the ROC curve of one list.

    The share of pairs of a positive and a negative in which the positive is higher; a tie counts
    one half. Two sorts, no matrix of pairs. Arguments, errors and result as of
    :func:`average_precision`; NaN also without a negative.

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
