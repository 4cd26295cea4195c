"""Stable AP: average precision as a rank-weighted pairwise loss."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmrank.losses.pairs.pair_sums import pairwise_surrogate_sum
from mmrank.losses.pairs.surrogates import OneSidedHuber, Surrogate

from .lists import count_negatives, ranking_function, score_lists
from .rank_weights import mean_one, practical_weight, smoothed_rank

WEIGHTS = ('normalised', 'printed')


def stable_ap_outer(x: Tensor, eps: float) -> Tensor:
    """Outer function ``h(x) = sqrt(eps^2 + x/(1 + x))``.

    The paper prints the exponent -1/2; its theorem 1 and lemma 9 need +1/2.
    Source: stable AP (2025), theorem 1.

    Args:
        x: Values >= 0, any shape; inf is its limit, NaN stays NaN.
        eps: Smoothing > 0: the slope is at most ``1/(2 eps)``.

    Returns:
        Values in ``[eps, sqrt(1 + eps^2)]``, same shape.

    Raises:
        ValueError: If ``eps`` is not > 0.
    """
    if not eps > 0:
        raise ValueError(f'eps must be > 0, got {eps!r}')
    # x/(1 + x), in a form that is exact near 0, finite at inf and whose derivative does not cancel.
    ratio = -torch.expm1(-torch.log1p(x))
    return (eps**2 + ratio).sqrt()


class WeightedRisk(NamedTuple):
    """Rank-weighted pair loss, before rho and h.

    Without the dimension L where there is one list of 1-D scores.

    Attributes:
        risk: (L,) ``X = 1/(n+ n-) sum_ij sg[w_i] l(s_i - t_j)``, >= 0; 0 for
            a list without positives or negatives.
        ratio: (L,) imbalance ``n-/n+`` of the list, detached.
        weight: (L, P) weights of the positives, detached.
        has_positive: (L,) bool.
    """

    risk: Tensor
    ratio: Tensor
    weight: Tensor
    has_positive: Tensor


@ranking_function
def rank_weighted_risk(
    pos: Tensor,
    neg: Tensor,
    mean_pos: Tensor,
    *,
    surrogate: Surrogate,
    bound: float,
    a: float = 0.1,
    t: float = 2.0,
    weights: str = 'normalised',
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    method: str = 'auto',
    group=None,
) -> WeightedRisk:
    """Rank-weighted pair loss.

    Source: stable AP (2025), the argument of h in OP2 without rho.

    Args:
        pos: (P,) or padded (L, P) scores of the positives.
        neg: (N,) or (L, N) scores of the negatives.
        mean_pos: (L,) or scalar mean positive scores mu, no gradient.
        surrogate: Pair surrogate l.
        bound: Largest value B of l on the score range, > 0.
        a: Offset of the weight, > 0.
        t: Power of the weight, >= 0.
        weights: ``normalised``: divided by their mean in each list (see
            :func:`mean_one`). ``printed``: equation 4 as it is printed, with
            a mean of up to ``((1 + a)/a)^t``.
        pos_mask: (L, P) bool, False for padding.
        neg_mask: (L, N) bool, False for what is no negative.
        method: See :func:`pairwise_surrogate_sum`.
        group: Process group over which the negatives are spread; ``pos`` must then hold the
            positives of all ranks.

    Returns:
        Risk and its diagnostics, in float64.

    Raises:
        ValueError: On a parameter out of range or shapes that do not fit.
        TypeError: If a score tensor is not of a float dtype.
    """
    if weights not in WEIGHTS:
        raise ValueError(f'weights={weights!r} is unknown; use one of {WEIGHTS}')
    total = pairwise_surrogate_sum(
        pos, neg, surrogate, pos_mask=pos_mask, neg_mask=neg_mask, method=method, group=group
    )
    with torch.no_grad():
        mu = torch.as_tensor(mean_pos, dtype=torch.float64, device=pos.device)
        rank = smoothed_rank(pos.double(), mu.reshape(-1, 1), surrogate, bound)
        weight = torch.where(pos_mask, practical_weight(rank, a, t), 0)
        if weights == 'normalised':
            weight = mean_one(weight, pos_mask)
        num_pos = pos_mask.sum(1).double()
        num_neg = count_negatives(neg, neg_mask, group)
        pairs = (num_pos * num_neg).clamp(min=1)
    risk = (weight * total).sum(1) / pairs
    ratio = num_neg / num_pos.clamp(min=1)
    return WeightedRisk(risk, ratio, weight, num_pos > 0)


class StableAPTerms(NamedTuple):
    """Stable AP and its diagnostics.

    Without the dimension L where there is one list of 1-D scores.

    Attributes:
        loss: (L,) ``h(argument)``; 0 for a list without positives.
        argument: (L,) what h is applied to, >= 0, detached. Far above 1, h is flat and its gradient
            vanishes.
        weighted: What it was computed from.
    """

    loss: Tensor
    argument: Tensor
    weighted: WeightedRisk


def stable_ap_of_risk(
    weighted: WeightedRisk, rho: float | Tensor | None, eps: float
) -> StableAPTerms:
    """Stable AP of L lists from their weighted risks: ``h(rho X)``.

    Source: stable AP (2025), OP1 and OP2.

    Args:
        weighted: Result of :func:`rank_weighted_risk`.
        rho: Imbalance, > 0: a number, or (L,) numbers, which are a constant
            of the gradient. None: n-/n+ of each list.
        eps: Smoothing of h, > 0.

    Returns:
        Terms in float64.

    Raises:
        ValueError: If a parameter is out of range.
    """
    if rho is None:
        rho = weighted.ratio
    elif not isinstance(rho, Tensor) and not rho > 0:
        raise ValueError(f'rho must be > 0 or None (n-/n+), got {rho!r}')
    argument = rho * weighted.risk
    loss = torch.where(weighted.has_positive, stable_ap_outer(argument, eps), 0)
    return StableAPTerms(loss, argument.detach(), weighted)


@ranking_function
def stable_ap_terms(
    pos: Tensor,
    neg: Tensor,
    mean_pos: Tensor | float,
    *,
    surrogate: Surrogate,
    bound: float,
    a: float = 0.1,
    t: float = 2.0,
    eps: float = 0.1,
    rho: float | Tensor | None = None,
    weights: str = 'normalised',
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    method: str = 'auto',
    group=None,
) -> StableAPTerms:
    """Stable AP with any surrogate, and its diagnostics.

    ``h(rho / (n+ n-) * sum_ij sg[w_i] l(s_i - t_j))`` per list. Source:
    stable AP (2025), OP1 and OP2.

    Args:
        pos: (P,) or padded (L, P) scores of the positives.
        neg: (N,) or (L, N) scores of the negatives.
        mean_pos: (L,) or scalar mean positive scores mu, no gradient.
        surrogate: Pair surrogate l.
        bound: Largest value B of l on the score range, > 0.
        a: Offset of the weight, > 0.
        t: Power of the weight, >= 0.
        eps: Smoothing of h, > 0.
        rho: Imbalance, > 0: a number, or (L,). None: n-/n+ of each list.
        weights: ``normalised`` or ``printed``, see
            :func:`rank_weighted_risk`.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        method: See :func:`pairwise_surrogate_sum`.
        group: Process group over which the negatives are spread; ``pos`` must then hold the
            positives of all ranks.

    Returns:
        Terms, in float64 where the scores are 2-D.

    Raises:
        ValueError: On a parameter out of range or shapes that do not fit.
        TypeError: If a score tensor is not of a float dtype.
    """
    weighted = rank_weighted_risk(
        pos,
        neg,
        mean_pos,
        surrogate=surrogate,
        bound=bound,
        a=a,
        t=t,
        weights=weights,
        pos_mask=pos_mask,
        neg_mask=neg_mask,
        method=method,
        group=group,
    )
    return stable_ap_of_risk(weighted, rho, eps)


@ranking_function
def stable_ap_loss(
    pos: Tensor,
    neg: Tensor,
    mean_pos: Tensor | float,
    *,
    tau: float,
    bound: float,
    a: float = 0.1,
    t: float = 2.0,
    eps: float = 0.1,
    rho: float | Tensor | None = None,
    weights: str = 'normalised',
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    method: str = 'auto',
    group=None,
) -> Tensor:
    """Stable AP loss with the one-sided Huber surrogate.

    Source: stable AP (2025), OP2.

    Args:
        pos: (P,) or padded (L, P) scores of the positives.
        neg: (N,) or (L, N) scores of the negatives.
        mean_pos: (L,) or scalar mean positive scores mu, no gradient: an estimate that outlives the
            batch.
        tau: Margin of the surrogate in units of the scores, > 0.
        bound: Largest value B of the surrogate on the score range;
            ``1 + 2 (high - low)/tau``, so ``1 + 4/tau`` for cosines.
        a: Offset of the weight, > 0.
        t: Power of the weight, >= 0.
        eps: Smoothing of the outer function, > 0.
        rho: Imbalance, > 0: a number, or (L,). None: n-/n+ of each list, at which h saturates from
            random weights on, in the 112 images of a retrieval batch as among the anchors of a
            detector; the
            registered ``StableAPLoss`` caps it.
        weights: ``normalised`` or ``printed``, see
            :func:`rank_weighted_risk`.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        method: See :func:`pairwise_surrogate_sum`.
        group: Process group over which the negatives are spread; ``pos`` must then hold the
            positives of all ranks.

    Returns:
        Scalar, or (L,) float64 losses, in ``[eps, sqrt(1 + eps^2)]``; 0,
        still attached to the graph, for a list without positives.

    Raises:
        ValueError: On a parameter out of range or shapes that do not fit.
        TypeError: If a score tensor is not of a float dtype.

    Example:
        >>> pos, neg = torch.tensor([1.0, 0.2]), torch.tensor([0.1, -3.0])
        >>> stable_ap_loss(pos, neg, pos.mean(), tau=1.0, bound=21.0)
        tensor(0.3409)
    """
    return stable_ap_terms(
        pos,
        neg,
        mean_pos,
        surrogate=OneSidedHuber(tau),
        bound=bound,
        a=a,
        t=t,
        eps=eps,
        rho=rho,
        weights=weights,
        pos_mask=pos_mask,
        neg_mask=neg_mask,
        method=method,
        group=group,
    ).loss


stable_ap_lists = score_lists(stable_ap_loss)
"""``stable_ap_loss`` of each row of scores; see ``score_lists``."""
