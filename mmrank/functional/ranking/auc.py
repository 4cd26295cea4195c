"""Area under the ROC curve by pair surrogates."""

import torch
from torch import Tensor

from mmrank.losses.pairs.pair_sums import pairwise_surrogate_sum
from mmrank.losses.pairs.surrogates import OneSidedHuber, Sigmoid

from .lists import count_negatives, ranking_function, score_lists

# Surrogate and what its value is multiplied by: 1/2 makes the sigmoid a
# smooth 0-1 loss, so that the mean is a smooth 1 - AUC.
_SURROGATES = {'sigmoid': (Sigmoid, 0.5), 'one_sided_huber': (OneSidedHuber, 1.0)}


@ranking_function
def auc_loss(
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
    """AUC loss.

    ``mean_ij l(s_i - t_j)`` over all pairs of a positive and a negative.

    Args:
        pos: (P,) or padded (L, P) scores of the positives.
        neg: (N,) or (L, N) scores of the negatives.
        surrogate: ``sigmoid``: ``l(x) = sigmoid(-x / tau)``;
            ``one_sided_huber``: :func:`one_sided_huber`, exact in near-linear time.
        tau: Temperature or margin in units of the scores, > 0.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        method: See :func:`pairwise_surrogate_sum`.
        group: Process group over which the negatives are spread; ``pos`` must then hold the
            positives of all ranks.

    Returns:
        Scalar, or (L,) float64 losses, >= 0, with the sigmoid at most 1; 0, still attached to the
        graph, for a list without positives or without negatives.

    Raises:
        ValueError: If the surrogate is unknown, ``tau`` is not > 0 or the shapes do not fit.
        TypeError: If a score tensor is not of a float dtype.

    Example:
        >>> pos, neg = torch.tensor([0.9, 0.2]), torch.tensor([0.5, -0.5])
        >>> auc_loss(pos, neg, tau=0.01)
        tensor(0.2500)
    """
    if surrogate not in _SURROGATES:
        raise ValueError(f'surrogate={surrogate!r} is unknown; use one of {tuple(_SURROGATES)}')
    kind, factor = _SURROGATES[surrogate]
    total = pairwise_surrogate_sum(
        pos, neg, kind(tau), pos_mask=pos_mask, neg_mask=neg_mask, method=method, group=group
    )
    with torch.no_grad():
        num_pos = pos_mask.sum(1).double()
        num_neg = count_negatives(neg, neg_mask, group)
        pairs = (num_pos * num_neg).clamp(min=1)
    return factor * total.sum(1) / pairs


auc_lists = score_lists(auc_loss)
"""``auc_loss`` of each row of scores; see ``score_lists``."""
