"""SOAP: average precision from moving averages of each positive."""

import torch
from torch import Tensor

from mmrank.losses.pairs.pair_sums import check_lists, pairwise_surrogate_sum
from mmrank.losses.pairs.surrogates import SquaredHinge

from .lists import count_negatives, ranking_function, score_lists


def surrogate_ranks(
    pos: Tensor,
    neg: Tensor,
    *,
    margin: float = 1.0,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    group=None,
) -> Tensor:
    """Surrogate ranks of each positive, as shares of its list.

    ``g_i = mean_s l(s_i - s) [1[s is positive], 1]`` over all n scores s of the list, s_i itself
    included, with the squared hinge
    ``l(x) = max(0, 1 - x/margin)^2``. Source: Qi et al., Stochastic Optimization of Areas Under
    Precision-Recall Curves with Provable Convergence, NeurIPS 2021, eq. 3 and 4 (its l is
    ``margin^2`` times ours,
    a factor that drops out).

    Args:
        pos: (L, P) scores of the positives, padded.
        neg: (L, N) scores of the negatives.
        margin: Margin in units of the scores, > 0.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        group: Process group over which the negatives are spread; ``pos`` must then hold the
            positives of all ranks.

    Returns:
        (2, L, P) float64: among the positives, among all; ``0 < g_1 <= g_2``, and 0 at padding.
        Differentiable once.

    Raises:
        ValueError: If ``margin`` is not > 0 or the shapes do not fit.
        TypeError: If a score tensor is not of a float dtype.
    """
    hinge = SquaredHinge(margin)
    if pos_mask is None:
        pos_mask = torch.ones_like(pos, dtype=torch.bool)
    # Gradients of both sums are added in float64: where a score is infinite, each alone exceeds
    # float16, and their sum would be NaN.
    check_lists(pos, neg)
    pos, neg = pos.double(), neg.double()
    among = pairwise_surrogate_sum(pos, pos, hinge, pos_mask=pos_mask, neg_mask=pos_mask)
    below = pairwise_surrogate_sum(
        pos, neg, hinge, pos_mask=pos_mask, neg_mask=neg_mask, group=group
    )
    num_neg = count_negatives(neg, neg_mask, group)
    size = (pos_mask.sum(1) + num_neg).clamp(min=1)[:, None]
    return torch.stack([among, among + below]) / size


def soap_of_ranks(batch: Tensor, moving: Tensor, pos_mask: Tensor | None = None) -> Tensor:
    """SOAP loss of L lists from surrogate ranks and their averages.

    The value is ``mean_i 1 - u_i1/u_i2``. The gradient is
    ``mean_i (-1/u_i2) grad g_i1 + (u_i1/u_i2^2) grad g_i2``, in which u is a constant; where u is g
    it is that of the value. Source: SOAP (NeurIPS 2021), eq. 5 and 6.

    Args:
        batch: (2, L, P) g with gradient, see :func:`surrogate_ranks`.
        moving: (2, L, P) u, see :func:`moving_ranks`.
        pos_mask: (L, P) bool, False for padding. None: all are real.

    Returns:
        (L,) float64 losses in [0, 1], 0 for a list without positives.
    """
    if pos_mask is None:
        pos_mask = torch.ones_like(batch[0], dtype=torch.bool)
    among, total = moving.detach()
    # Padding divides by 1, not by 0: a NaN there would reach the gradient.
    total = torch.where(pos_mask, total, 1)
    among = torch.where(pos_mask, among, 0)
    g1, g2 = batch
    varying = (among / total * g2 - g1) / total
    risk = 1 - among / total + (varying - varying.detach())
    risk = torch.where(pos_mask, risk, 0)
    return risk.sum(1) / pos_mask.sum(1).clamp(min=1)


@ranking_function
def soap_loss(
    pos: Tensor,
    neg: Tensor,
    *,
    margin: float = 1.0,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    group=None,
) -> Tensor:
    """SOAP loss without moving averages: u is the g of the batch.

    Args:
        pos: (P,) or padded (L, P) scores of the positives.
        neg: (N,) or (L, N) scores of the negatives.
        margin: Margin in units of the scores, > 0.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        group: Process group over which the negatives are spread; ``pos`` must then hold the
            positives of all ranks.

    Returns:
        Scalar, or (L,) float64 losses, in [0, 1]; 0, still attached to the graph, for a list
        without positives.

    Raises:
        ValueError: If ``margin`` is not > 0 or the shapes do not fit.
        TypeError: If a score tensor is not of a float dtype.

    Example:
        >>> pos, neg = torch.tensor([2.0, 0.0]), torch.tensor([0.0, -3.0])
        >>> soap_loss(pos, neg)
        tensor(0.0455)
    """
    batch = surrogate_ranks(
        pos, neg, margin=margin, pos_mask=pos_mask, neg_mask=neg_mask, group=group
    )
    return soap_of_ranks(batch, batch, pos_mask)


soap_lists = score_lists(soap_loss)
"""``soap_loss`` of each row of scores; see ``score_lists``."""
