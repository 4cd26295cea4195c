"""Multi-class area under the ROC curve by pair surrogates."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmrank.distributed import all_reduce_sum
from mmrank.gathering import all_gather_lists
from mmrank.losses.pairs.pair_sums import pairwise_surrogate_sum
from mmrank.losses.pairs.surrogates import OneSidedHuber, clamp_infinite

from .lists import gather_positives

MAUC_SURROGATES = ('square', 'one_sided_huber')


class MAUCTerms(NamedTuple):
    """MAUC of C classes and its diagnostics.

    Attributes:
        loss: (C,) float64 losses, 0 for a class without pairs.
        has_pairs: (C,) bool.
    """

    loss: Tensor
    has_pairs: Tensor


def mauc_terms(
    scores: Tensor,
    is_positive: Tensor,
    *,
    surrogate: str = 'square',
    tau: float = 1.0,
    mask: Tensor | None = None,
    group=None,
) -> MAUCTerms:
    """Multi-class AUC loss, one against one.

    For class i the mean over the other classes j of
    ``mean_{x in i, y in j} l(f_i(x) - f_i(y))``, so a rare class counts as much as a frequent one,
    also among the negatives. Source: Yang et al., Learning with Multiclass AUC: Theory and
    Algorithms, TPAMI 2021, eq. 1. Samples of no class are one more class of negatives: with C = 1
    the loss
    is the binary one. A sample with several classes counts in each of them;
    it is never a negative of its own.

    Args:
        scores: (C, N) float scores.
        is_positive: (C, N) bool.
        surrogate: ``square``: ``l(x) = (1 - x/tau)^2``, O(C^2 N) from sums
            and sums of squares of the classes, without a pair;
            ``one_sided_huber``: :func:`one_sided_huber`, by sorting where the matrix of pairs would
            be large.
        tau: Margin in units of the scores, > 0.
        mask: (C, N) bool, False for entries to ignore.
        group: Process group over which the samples are spread.

    Returns:
        Terms in float64; the same on all ranks.

    Raises:
        ValueError: If the surrogate is unknown, ``tau`` is not > 0 or the shapes do not fit.
        TypeError: If the scores are not of a float dtype.
    """
    if surrogate not in MAUC_SURROGATES:
        raise ValueError(f'surrogate={surrogate!r} is unknown; use one of {MAUC_SURROGATES}')
    huber = OneSidedHuber(tau)  # refuses a bad tau
    if not scores.is_floating_point():
        raise TypeError(f'scores must be of a float dtype, got {scores.dtype}; call scores.float()')
    if scores.dim() != 2 or scores.shape != is_positive.shape:
        raise ValueError(
            'scores and is_positive must be (classes, samples) of one shape, '
            f'got {tuple(scores.shape)} and {tuple(is_positive.shape)}'
        )
    if mask is not None and mask.shape != scores.shape:
        raise ValueError(f'mask must have shape {tuple(scores.shape)}, got {tuple(mask.shape)}')
    is_negative = ~is_positive
    if mask is not None:
        is_positive, is_negative = is_positive & mask, is_negative & mask
    sides = _Sides.of(is_positive, is_negative, group)
    if surrogate == 'square':
        pairs = _square_means(scores, sides, tau)
    else:
        pairs = _huber_means(scores, sides, huber)
    has_pairs = (sides.num_neg > 0) & (sides.num_pos > 0)
    pairs = torch.where(has_pairs, pairs, 0)
    others = has_pairs.sum(1)
    return MAUCTerms(pairs.sum(1) / others.clamp(min=1), others > 0)


class _Sides(NamedTuple):
    """What is compared: samples (C, N), members (G, N), counts (C, 1 or G).

    G = C + 1 groups of negatives: the classes, and samples of no class.
    """

    is_positive: Tensor
    is_negative: Tensor
    members: Tensor
    num_pos: Tensor
    num_neg: Tensor
    group: object

    @classmethod
    @torch.no_grad()
    def of(cls, is_positive: Tensor, is_negative: Tensor, group) -> '_Sides':
        members = torch.cat([is_positive, ~is_positive.any(0, keepdim=True)])
        own = is_positive.sum(1, keepdim=True).double()
        others = is_negative.double() @ members.double().t()
        counts = all_reduce_sum(torch.cat([own, others], 1), group)
        return cls(is_positive, is_negative, members, counts[:, :1], counts[:, 1:], group)


def _square_means(scores: Tensor, sides: _Sides, tau: float) -> Tensor:
    """(C, G) means over the pairs of two classes, from their moments."""
    x = clamp_infinite(scores.double())
    pos = torch.where(sides.is_positive, x, 0)
    neg = torch.where(sides.is_negative, x, 0)
    members = sides.members.double().t()
    moments = torch.stack(
        [
            torch.cat([p.sum(1, keepdim=True), n @ members], 1)
            for p, n in ((pos, neg), (pos.square(), neg.square()))
        ]
    )
    first, second = all_reduce_sum(moments, sides.group)
    num_pos, num_neg = sides.num_pos.clamp(min=1), sides.num_neg.clamp(min=1)
    pos1, neg1 = first[:, :1] / num_pos, first[:, 1:] / num_neg
    pos2, neg2 = second[:, :1] / num_pos, second[:, 1:] / num_neg
    squared = pos2 - 2 * pos1 * neg1 + neg2
    return 1 - 2 * (pos1 - neg1) / tau + squared / tau**2


def _huber_means(scores: Tensor, sides: _Sides, huber: OneSidedHuber) -> Tensor:
    """(C, G) means over the pairs of two classes, group by group."""
    pos, pos_mask = gather_positives(scores, sides.is_positive)
    if sides.group is not None:
        pos, pos_mask = all_gather_lists(pos, pos_mask, sides.group)
    sums = [
        pairwise_surrogate_sum(
            pos,
            scores,
            huber,
            pos_mask=pos_mask,
            neg_mask=sides.is_negative & member,
            group=sides.group,
        ).sum(1)
        for member in sides.members
    ]
    return torch.stack(sums, 1) / (sides.num_pos * sides.num_neg).clamp(min=1)
