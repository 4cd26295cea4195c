"""SmoothAP: average precision with sigmoids for the ranks."""

import torch
from torch import Tensor

from mmrank.losses.pairs.pair_sums import pairwise_surrogate_sum
from mmrank.losses.pairs.surrogates import Sigmoid

from .lists import ranking_function, score_lists


@ranking_function
def smooth_ap_loss(
    pos: Tensor,
    neg: Tensor,
    *,
    tau: float = 0.01,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    group=None,
) -> Tensor:
    """SmoothAP loss.

    ``1 - mean_i R+_i / (R+_i + sum_j G(t_j - s_i))`` with the rank among the positives ``R+_i = 1 +
    sum_{k != i} G(s_k - s_i)`` and
    ``G(x) = sigmoid(x / tau)``. Source: Brown et al., Smooth-AP: Smoothing
    the Path Towards Large-Scale Image Retrieval, ECCV 2020, eqs. 5 to 7.

    Args:
        pos: (P,) or padded (L, P) scores of the positives.
        neg: (N,) or (L, N) scores of the negatives.
        tau: Temperature in units of the scores, > 0.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        group: Process group over which the negatives are spread; ``pos`` must then hold the
            positives of all ranks.

    Returns:
        Scalar, or (L,) float64 losses, in [0, 1]; 0, still attached to the graph, for a list
        without positives. The pairs are formed in blocks: memory does not grow with P * N.

    Raises:
        ValueError: If ``tau`` is not > 0 or the shapes do not fit.
        TypeError: If a score tensor is not of a float dtype.

    Example:
        >>> pos, neg = torch.tensor([0.9, 0.2]), torch.tensor([0.5, -0.5])
        >>> smooth_ap_loss(pos, neg)
        tensor(0.1667)
    """
    sigmoid = Sigmoid(tau)
    # The surrogate is twice the sigmoid of the paper.
    above = 0.5 * pairwise_surrogate_sum(
        pos, neg, sigmoid, pos_mask=pos_mask, neg_mask=neg_mask, group=group
    )
    among = 0.5 * pairwise_surrogate_sum(pos, pos, sigmoid, pos_mask=pos_mask, neg_mask=pos_mask)
    # A positive meets itself at 1/2; the paper counts it as 1.
    rank = among + 0.5 + above
    risk = torch.where(pos_mask, above / rank, 0)
    return risk.sum(1) / pos_mask.sum(1).clamp(min=1)


smooth_ap_lists = score_lists(smooth_ap_loss)
"""``smooth_ap_loss`` of each row of scores; see ``score_lists``."""
