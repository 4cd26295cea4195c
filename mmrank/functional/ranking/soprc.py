"""SOPRC: AUPRC estimated with a class prior and a score vector."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmrank.losses.pairs.pair_sums import pairwise_surrogate_sum
from mmrank.losses.pairs.surrogates import OneSidedHuber, OneSidedSigmoid, Surrogate

from .lists import count_negatives, ranking_function, score_lists


class SOPRCTerms(NamedTuple):
    """SOPRC and its diagnostics.

    Without the dimension L where there is one list of 1-D scores.

    Attributes:
        loss: (L,) risks in [0, 1]; 0 for a list without positives.
        argument: (L,) mean of what ``x/(1 + x)`` is applied to, >= 0, detached. Far above 1 its
            gradient vanishes.
        has_positive: (L,) bool.
    """

    loss: Tensor
    argument: Tensor
    has_positive: Tensor


@ranking_function
def soprc_terms(
    pos: Tensor,
    neg: Tensor,
    v: Tensor,
    *,
    prior: Tensor | float | None,
    surrogate: Surrogate,
    tau2: float,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    rank_gradient: bool = True,
    method: str = 'auto',
    group=None,
) -> SOPRCTerms:
    """SOPRC with any surrogate, and its diagnostics.

    ``mean_i h((1-pi)/pi * mean_j l1(s_i - t_j) / r_i)`` per list, with
    ``h(x) = x/(1 + x)`` and ``r_i = (1 + sum_v l2(s_i - v)) / (V + 1)``, which counts the positive
    itself and is never 0. Source: SOPRC (NeurIPS 2022), eq. 8.

    Args:
        pos: (P,) or padded (L, P) scores of the positives.
        neg: (N,) or (L, N) scores of the negatives.
        v: (V,) or (L, V) scores that represent all positives of the data set, finite, in any order;
            a constant of the gradient.
        prior: Share pi of the positives in the data set, in (0, 1): a number or (L,). None: n+/(n+
            + n-) of each list, the biased estimator of average precision.
        surrogate: Pair surrogate l1.
        tau2: Temperature of l2, :func:`one_sided_sigmoid`, > 0.
        pos_mask: (L, P) bool, False for padding.
        neg_mask: (L, N) bool, False for what is no negative.
        rank_gradient: False makes r_i a constant of the gradient, as the authors' code does: r_i
            then weighs the positives but does not
            push the low ones further down, below more of v.
        method: See :func:`pairwise_surrogate_sum`, for l1.
        group: Process group over which the negatives are spread; ``pos`` must then hold the
            positives of all ranks.

    Returns:
        Terms, in float64 where the scores are 2-D.

    Raises:
        ValueError: On a parameter out of range or shapes that do not fit.
        TypeError: If a score tensor is not of a float dtype.
    """
    v = _vector_of_lists(v, pos)
    total = pairwise_surrogate_sum(
        pos, neg, surrogate, pos_mask=pos_mask, neg_mask=neg_mask, method=method, group=group
    )
    with torch.no_grad():
        num_pos = pos_mask.sum(1).double()
        num_neg = count_negatives(neg, neg_mask, group)
        scale = _odds(prior, num_pos, num_neg) / num_neg.clamp(min=1)
    higher = pairwise_surrogate_sum(
        pos if rank_gradient else pos.detach(), v.detach(), OneSidedSigmoid(tau2), pos_mask=pos_mask
    )
    share = (1 + higher) / (v.size(1) + 1)
    argument = scale[:, None] * total / share
    # x/(1 + x), in a form that is finite at inf.
    risk = torch.where(pos_mask, -torch.expm1(-torch.log1p(argument)), 0)
    count = num_pos.clamp(min=1)
    with torch.no_grad():
        watched = torch.where(pos_mask, argument, 0).sum(1) / count
    return SOPRCTerms(risk.sum(1) / count, watched, num_pos > 0)


def _vector_of_lists(v: Tensor, pos: Tensor) -> Tensor:
    if not v.is_floating_point():
        raise TypeError(f'v must be of a float dtype, got {v.dtype}; call v.float()')
    if v.dim() == 1:
        v = v.expand(pos.size(0), -1)
    if v.dim() != 2 or v.size(0) != pos.size(0):
        raise ValueError(
            f'v must be (length,) or ({pos.size(0)}, length) for '
            f'{pos.size(0)} lists, got shape {tuple(v.shape)}'
        )
    return v


def _odds(prior, num_pos: Tensor, num_neg: Tensor) -> Tensor:
    """(L,) odds (1 - pi)/pi of a negative."""
    if prior is None:
        return num_neg / num_pos.clamp(min=1)
    if not isinstance(prior, Tensor):
        if not 0 < prior < 1:
            raise ValueError(
                f'prior must be in (0, 1) or None (n+/(n+ + n-) of the list), got {prior!r}'
            )
        return torch.full_like(num_pos, (1 - prior) / prior)
    if prior.numel() not in (1, num_pos.numel()):
        raise ValueError(
            f'prior must be a number or ({num_pos.numel()},), one for each '
            f'list, got shape {tuple(prior.shape)}'
        )
    prior = prior.double().reshape(-1)
    if prior.device.type == 'cpu' and not ((prior > 0) & (prior < 1)).all():
        raise ValueError(
            f'prior must be in (0, 1), got values from {prior.min().item()} to {prior.max().item()}'
        )
    return ((1 - prior) / prior).expand_as(num_pos)


@ranking_function
def soprc_loss(
    pos: Tensor,
    neg: Tensor,
    v: Tensor,
    *,
    prior: Tensor | float | None,
    tau1: float,
    tau2: float,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    rank_gradient: bool = True,
    method: str = 'auto',
    group=None,
) -> Tensor:
    """SOPRC loss with the one-sided Huber surrogate.

    Source: SOPRC (NeurIPS 2022), eq. 8.

    Args:
        pos: (P,) or padded (L, P) scores of the positives.
        neg: (N,) or (L, N) scores of the negatives.
        v: (V,) or (L, V) scores that represent all positives of the data set, finite, in any order;
            a constant of the gradient. ``v[labels]`` gives each query of a retrieval batch the
            vector of its class.
        prior: Share of the positives in the data set, in (0, 1): a number or (L,). None: that of
            each list, the biased estimator.
        tau1: Margin of l1, :func:`one_sided_huber`, > 0.
        tau2: Temperature of l2, :func:`one_sided_sigmoid`, > 0.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        rank_gradient: Whether the gradient goes through l2, see
            :func:`soprc_terms`.
        method: See :func:`pairwise_surrogate_sum`.
        group: Process group over which the negatives are spread; ``pos`` must then hold the
            positives of all ranks.

    Returns:
        Scalar, or (L,) float64 losses, in [0, 1]; 0, still attached to the graph, for a list
        without positives.

    Raises:
        ValueError: On a parameter out of range or shapes that do not fit.
        TypeError: If a score tensor is not of a float dtype.

    Example:
        >>> pos, neg = torch.tensor([0.9, 0.2]), torch.tensor([0.3, -0.5])
        >>> v = interpolate_scores(pos, 4, -1.0, 1.0)
        >>> soprc_loss(pos, neg, v, prior=0.5, tau1=0.1, tau2=0.001)
        tensor(0.3571)
    """
    return soprc_terms(
        pos,
        neg,
        v,
        prior=prior,
        surrogate=OneSidedHuber(tau1),
        tau2=tau2,
        pos_mask=pos_mask,
        neg_mask=neg_mask,
        rank_gradient=rank_gradient,
        method=method,
        group=group,
    ).loss


soprc_lists = score_lists(soprc_loss)
"""``soprc_loss`` of each row of scores; see ``score_lists``."""
