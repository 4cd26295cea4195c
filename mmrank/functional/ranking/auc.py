"""Area under the ROC curve by pair surrogates."""

import torch
from torch import Tensor

from mmrank.functional.pairwise.pairwise_surrogate import (
    pairwise_surrogate_sum,
)
from mmrank.functional.pairwise.surrogates import OneSidedHuber, Sigmoid

from .lists import count_negatives, of_one_list, of_score_lists

# Surrogate and what its value is multiplied by: 1/2 makes the sigmoid a
# smooth 0-1 loss, so that the mean is a smooth 1 - AUC.
_SURROGATES = {
    'sigmoid': (Sigmoid, 0.5),
    'one_sided_huber': (OneSidedHuber, 1.0),
}


def auc_padded(
    pos: Tensor,
    neg: Tensor,
    *,
    surrogate: str = 'sigmoid',
    tau: float = 0.1,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    method: str = 'auto',
    group=None,
) -> Tensor:
    """AUC loss of L lists with padded positives.

    ``mean_ij l(s_i - t_j)`` over all pairs of a positive and a negative.

    Args:
        pos: (L, P) scores of the positives, padded.
        neg: (L, N) scores of the negatives.
        surrogate: ``sigmoid``: ``l(x) = sigmoid(-x / tau)``;
            ``one_sided_huber``: :func:`one_sided_huber`, exact in near-linear
            time.
        tau: Temperature or margin in units of the scores, > 0.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        method: See :func:`pairwise_surrogate_sum`.
        group: Process group over which the negatives are spread; ``pos`` must
            then hold the positives of all ranks.

    Returns:
        (L,) float64 losses >= 0, with the sigmoid at most 1; 0 for a list
        without positives or without negatives.

    Raises:
        ValueError: If the surrogate is unknown, ``tau`` is not > 0 or the
            shapes do not fit.
        TypeError: If a score tensor is not of a float dtype.
    """
    if surrogate not in _SURROGATES:
        raise ValueError(
            f'surrogate={surrogate!r} is unknown; use one of '
            f'{tuple(_SURROGATES)}'
        )
    kind, factor = _SURROGATES[surrogate]
    if pos_mask is None:
        pos_mask = torch.ones_like(pos, dtype=torch.bool)
    total = pairwise_surrogate_sum(
        pos,
        neg,
        kind(tau),
        pos_mask=pos_mask,
        neg_mask=neg_mask,
        method=method,
        group=group,
    )
    with torch.no_grad():
        num_pos = pos_mask.sum(1).double()
        num_neg = count_negatives(neg, neg_mask, group)
        pairs = (num_pos * num_neg).clamp(min=1)
    return factor * total.sum(1) / pairs


def auc_lists(
    scores: Tensor,
    is_positive: Tensor,
    *,
    surrogate: str = 'sigmoid',
    tau: float = 0.1,
    mask: Tensor | None = None,
    method: str = 'auto',
) -> Tensor:
    """AUC loss of L lists in one call.

    Args:
        scores: (L, N) float scores.
        is_positive: (L, N) bool or integer, nonzero = positive of its list.
        surrogate: ``sigmoid`` or ``one_sided_huber``.
        tau: Temperature or margin in units of the scores, > 0.
        mask: (L, N) bool, False for entries to ignore.
        method: See :func:`pairwise_surrogate_sum`.

    Returns:
        (L,) losses >= 0, 0 for a list without positives or without
        negatives; float64 for float64 scores, else float32.

    Raises:
        ValueError: If the surrogate is unknown, ``tau`` is not > 0 or the
            shapes do not fit.
        TypeError: If the scores are not of a float dtype.
    """
    return of_score_lists(
        auc_padded,
        scores,
        is_positive,
        mask,
        surrogate=surrogate,
        tau=tau,
        method=method,
    )


def auc_loss(
    pos: Tensor,
    neg: Tensor,
    *,
    surrogate: str = 'sigmoid',
    tau: float = 0.1,
    method: str = 'auto',
) -> Tensor:
    """AUC loss of one list.

    Args:
        pos: (n+,) float scores of the positives.
        neg: (n-,) float scores of the negatives.
        surrogate: ``sigmoid`` or ``one_sided_huber``.
        tau: Temperature or margin in units of the scores, > 0.
        method: See :func:`pairwise_surrogate_sum`.

    Returns:
        Scalar >= 0; 0, still attached to the graph, when there is no positive
        or no negative.

    Raises:
        ValueError: If the surrogate is unknown, ``tau`` is not > 0 or an
            input is not 1-D.
        TypeError: If a score tensor is not of a float dtype.

    Example:
        >>> pos, neg = torch.tensor([0.9, 0.2]), torch.tensor([0.5, -0.5])
        >>> auc_loss(pos, neg, tau=0.01)
        tensor(0.2500)
    """
    return of_one_list(
        auc_padded, pos, neg, surrogate=surrogate, tau=tau, method=method
    )
