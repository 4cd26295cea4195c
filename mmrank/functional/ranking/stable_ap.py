"""Stable AP: average precision as a rank-weighted pairwise loss."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmrank.functional.pairwise.pairwise_surrogate import (
    pairwise_surrogate_sum,
)
from mmrank.functional.pairwise.surrogates import OneSidedHuber, Surrogate

from .lists import count_negatives, of_one_list, of_score_lists
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
    # x/(1 + x), in a form that is exact near 0, finite at inf and whose
    # derivative does not cancel.
    ratio = -torch.expm1(-torch.log1p(x))
    return (eps**2 + ratio).sqrt()


class WeightedRisk(NamedTuple):
    """Rank-weighted pair loss of L lists, before rho and h.

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
    """Rank-weighted pair loss of L lists with padded positives.

    Source: stable AP (2025), the argument of h in OP2 without rho.

    Args:
        pos: (L, P) scores of the positives, padded.
        neg: (L, N) scores of the negatives.
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
        group: Process group over which the negatives are spread; ``pos`` must
            then hold the positives of all ranks.

    Returns:
        Risk and its diagnostics, in float64.

    Raises:
        ValueError: On a parameter out of range or shapes that do not fit.
        TypeError: If a score tensor is not of a float dtype.
    """
    if weights not in WEIGHTS:
        raise ValueError(
            f'weights={weights!r} is unknown; use one of {WEIGHTS}'
        )
    if pos_mask is None:
        pos_mask = torch.ones_like(pos, dtype=torch.bool)
    total = pairwise_surrogate_sum(
        pos,
        neg,
        surrogate,
        pos_mask=pos_mask,
        neg_mask=neg_mask,
        method=method,
        group=group,
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
    """Stable AP of L lists and its diagnostics.

    Attributes:
        loss: (L,) ``h(argument)``; 0 for a list without positives.
        argument: (L,) what h is applied to, >= 0, detached. Far above 1, h is
            flat and its gradient vanishes.
        weight: (L, P) weights of the positives, detached.
        has_positive: (L,) bool.
    """

    loss: Tensor
    argument: Tensor
    weight: Tensor
    has_positive: Tensor


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
    loss = torch.where(
        weighted.has_positive, stable_ap_outer(argument, eps), 0
    )
    return StableAPTerms(
        loss, argument.detach(), weighted.weight, weighted.has_positive
    )


def stable_ap_terms(
    pos: Tensor,
    neg: Tensor,
    mean_pos: Tensor,
    *,
    eps: float = 0.1,
    rho: float | Tensor | None = None,
    **settings,
) -> StableAPTerms:
    """Stable AP of L lists with padded positives.

    ``h(rho / (n+ n-) * sum_ij sg[w_i] l(s_i - t_j))`` per list. Source:
    stable AP (2025), OP1 and OP2.

    Args:
        pos: (L, P) scores of the positives, padded.
        neg: (L, N) scores of the negatives.
        mean_pos: (L,) or scalar mean positive scores mu, no gradient.
        eps: See :func:`stable_ap_of_risk`, as ``rho``.
        rho: Imbalance, > 0. None: n-/n+ of each list.
        **settings: See :func:`rank_weighted_risk`.

    Returns:
        Terms in float64.

    Raises:
        ValueError: On a parameter out of range or shapes that do not fit.
        TypeError: If a score tensor is not of a float dtype.
    """
    weighted = rank_weighted_risk(pos, neg, mean_pos, **settings)
    return stable_ap_of_risk(weighted, rho, eps)


def _losses(pos: Tensor, neg: Tensor, *, tau: float, **settings) -> Tensor:
    terms = stable_ap_terms(pos, neg, surrogate=OneSidedHuber(tau), **settings)
    return terms.loss


def stable_ap_lists(
    scores: Tensor,
    is_positive: Tensor,
    mean_pos: Tensor | float,
    *,
    tau: float,
    bound: float,
    a: float = 0.1,
    t: float = 2.0,
    eps: float = 0.1,
    rho: float | None = None,
    weights: str = 'normalised',
    mask: Tensor | None = None,
    method: str = 'auto',
) -> Tensor:
    """Stable AP loss of L lists in one call.

    The lists are the classes of a one-vs-all problem (``scores =
    logits.t()``) or the queries of a retrieval batch (``mask`` leaves the
    query itself out). Source: stable AP (2025), OP2.

    Args:
        scores: (L, N) float scores.
        is_positive: (L, N) bool or integer, nonzero = positive of its list.
        mean_pos: (L,) or scalar mean positive scores mu.
        tau: Margin of the one-sided Huber surrogate, > 0.
        bound: Largest value B of the surrogate on the score range;
            ``1 + 2 (high - low)/tau``, so ``1 + 4/tau`` for cosines.
        a: Offset of the weight, > 0.
        t: Power of the weight, >= 0.
        eps: Smoothing of the outer function, > 0.
        rho: Imbalance, > 0. None: n-/n+ of each list. In lists of thousands
            of negatives h saturates at that from random weights on; the
            registered ``StableAPLoss`` caps it.
        weights: ``normalised`` or ``printed``, see
            :func:`rank_weighted_risk`.
        mask: (L, N) bool, False for entries to ignore.
        method: See :func:`pairwise_surrogate_sum`.

    Returns:
        (L,) losses in ``[eps, sqrt(1 + eps^2)]``, or 0 for a list without
        positives; float64 for float64 scores, else float32.

    Raises:
        ValueError: On a parameter out of range or shapes that do not fit.
        TypeError: If the scores are not of a float dtype.
    """
    return of_score_lists(
        _losses,
        scores,
        is_positive,
        mask,
        mean_pos=mean_pos,
        tau=tau,
        bound=bound,
        a=a,
        t=t,
        eps=eps,
        rho=rho,
        weights=weights,
        method=method,
    )


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
    rho: float | None = None,
    weights: str = 'normalised',
    method: str = 'auto',
) -> Tensor:
    """Stable AP loss of one list.

    Source: stable AP (2025), OP2.

    Args:
        pos: (n+,) float scores of the positives.
        neg: (n-,) float scores of the negatives.
        mean_pos: Mean positive score mu: an estimate that outlives the batch.
        tau: See :func:`stable_ap_lists`, as all that follow.
        bound: Largest value B of the surrogate on the score range.
        a: Offset of the weight.
        t: Power of the weight.
        eps: Smoothing of the outer function.
        rho: Imbalance. None: n-/n+.
        weights: ``normalised`` or ``printed``.
        method: See :func:`pairwise_surrogate_sum`.

    Returns:
        Scalar; 0, still attached to the graph, when there is no positive.

    Raises:
        ValueError: On a parameter out of range or an input that is not 1-D.
        TypeError: If a score tensor is not of a float dtype.

    Example:
        >>> pos, neg = torch.tensor([1.0, 0.2]), torch.tensor([0.1, -3.0])
        >>> stable_ap_loss(pos, neg, pos.mean(), tau=1.0, bound=21.0)
        tensor(0.3409)
    """
    return of_one_list(
        _losses,
        pos,
        neg,
        mean_pos=mean_pos,
        tau=tau,
        bound=bound,
        a=a,
        t=t,
        eps=eps,
        rho=rho,
        weights=weights,
        method=method,
    )
