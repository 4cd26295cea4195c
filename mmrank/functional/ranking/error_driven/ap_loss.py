"""AP-Loss: average precision by an error-driven update."""

import torch
from torch import Tensor

from mmrank.functional.ranking.lists import ranking_function, score_lists, split_targets

from .update import error_driven_loss, rank_counts


@ranking_function
def error_driven_ap(
    pos: Tensor,
    neg: Tensor,
    *,
    delta: float = 1.0,
    interpolate: bool = True,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    method: str = 'auto',
    group=None,
) -> Tensor:
    """AP-Loss of positives and negatives.

    ``mean_i N_FP(i) / rank(i)`` with ``rank(i) = 1 + sum_{k != i}
    H(s_k - s_i) + N_FP(i)``. With ``interpolate`` the precision
    ``1 - N_FP/rank`` of a positive is the largest of all positives that do
    not score higher. Source: AP-Loss (CVPR 2019), eqs. 4 to 6 and section 3.4.3.

    Args:
        pos: (P,) or padded (L, P) scores of the positives.
        neg: (N,) or (L, N) scores of the negatives.
        delta: Half width of the step H in units of the scores, > 0.
        interpolate: Use the interpolated precision.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        method: See :func:`pairwise_surrogate_sum`.
        group: Process group over which the negatives are spread; ``pos`` must then hold the
            positives of all ranks.

    Returns:
        Scalar, or (L,) float64 losses, in [0, 1]; 0 for a list without positives. The gradient is
        the paper's update (:func:`error_driven_loss`), not the derivative of the value.

    Raises:
        ValueError: If ``delta`` is not > 0 or the shapes do not fit.
        TypeError: If a score tensor is not of a float dtype.
    """
    counts = rank_counts(pos, neg, delta, pos_mask, neg_mask, method, group)
    with torch.no_grad():
        rank = 1 + counts.positives + counts.false_positives
        error = counts.false_positives / rank
        if interpolate:
            error = _interpolated(pos.double(), pos_mask, error)
        error = torch.where(pos_mask, error, 0)
        value = error.sum(1) / counts.num_pos
    return error_driven_loss(pos, neg, value, error, counts)


ap_loss_lists = score_lists(error_driven_ap, 'ap_loss_lists')
"""``error_driven_ap`` of each row of scores; see ``score_lists``."""


def _interpolated(pos: Tensor, pos_mask: Tensor, error: Tensor) -> Tensor:
    """Least error of all positives that score no higher."""
    if pos.size(1) == 0:
        return error
    order = torch.where(pos_mask, pos, float('inf')).argsort(1)
    least = error.gather(1, order).cummin(1).values
    return torch.empty_like(error).scatter_(1, order, least)


def ap_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    delta: float = 1.0,
    interpolate: bool = True,
    method: str = 'auto',
) -> Tensor:
    """AP-Loss of one list.

    Source: Chen et al., Towards Accurate One-Stage Object Detection with AP-Loss, CVPR 2019.

    Args:
        logits: Float scores of any shape, all in one ranking.
        targets: Same shape; > 0 positive, 0 negative, < 0 left out.
        delta: Half width of the step in units of the scores, > 0.
        interpolate: Use the interpolated precision.
        method: See :func:`pairwise_surrogate_sum`.

    Returns:
        Scalar in [0, 1]; 0, still attached to the graph, when there is no positive. float64 for
        float64 logits, else float32. The gradient is
        the paper's update.

    Raises:
        ValueError: If ``delta`` is not > 0 or the shapes differ.
        TypeError: If the logits are not of a float dtype.

    Example:
        >>> ap_loss(torch.tensor([2.0, 0.0, -3.0]), torch.tensor([0, 1, 0]))
        tensor(0.5000)
    """
    pos, neg, neg_mask, _ = split_targets(logits, targets)
    return error_driven_ap(
        pos, neg, delta=delta, interpolate=interpolate, neg_mask=neg_mask, method=method
    )
