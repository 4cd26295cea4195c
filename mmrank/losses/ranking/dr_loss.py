"""DR loss: distributional ranking of positives above negatives."""

import math

import torch
from torch import Tensor

from mmrank.distributed import all_reduce_sum
from mmrank.losses.base import StatelessRankingLoss
from mmrank.losses.lists import RankedLists, probabilities
from mmrank.losses.plain_lists import like_scores

from .error_driven import target_lists

# Of the paper. Temperatures of the positives and of the negatives: the smaller, the more the worst
# of them counts.
POS_LAMBDA = 1.0
NEG_LAMBDA = 0.1 / math.log(3.5)
# L of the smoothed hinge, and its factor, the authors' tau.
SHARPNESS = 6.0
SCALE = 4.0
# Between positives and negatives, in probability.
MARGIN = 0.5


def dr_loss(logits: Tensor, targets: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """DR loss of each list, of the sigmoid p of the logits.

    ``4/L log(1 + exp(L (P- - P+ + 1/2)))`` with L = 6, ``P- = sum_j q_j p_j``, ``q = softmax(p /
    lambda-)`` over the negatives, ``lambda- = 0.1 / log 3.5``, and ``P+`` the same over the
    positives with ``softmax(-p)``. Source: Qian et al., DR Loss: Improving Object Detection by
    Distributional Ranking, CVPR 2020, eqs. 6 to 9, whose sum over images is over lists here.

    See :func:`ap_loss` for the lists. Without positives ``P+ = 1``, as in the authors' code: the
    negatives are still pushed down. 0 for a list of which nothing counts.

    Example:
        >>> dr_loss(torch.tensor([2.0, 0.0, -3.0]), torch.tensor([0, 1, 0]))
        tensor(3.5265)
    """
    lists = target_lists(logits, targets, mask)
    lists.pos = probabilities(lists.pos)
    lists.scores = probabilities(lists.scores)
    return like_scores(_dr(lists), logits)


def _dr(lists: RankedLists) -> Tensor:
    low = _softmax_mean(lists.pos, -POS_LAMBDA, lists.positives)
    high = _softmax_mean(lists.scores, NEG_LAMBDA, lists.negatives, lists.group)
    low = torch.where(lists.has_positive, low, 1)
    gap = SHARPNESS * (high - low + MARGIN)
    losses = SCALE / SHARPNESS * torch.nn.functional.softplus(gap, threshold=50)
    return torch.where(_counts(lists), losses, 0)


def _counts(lists: RankedLists) -> Tensor:
    """(L,) bool, False for a list whose scores are all left out, such as a group of weight 0."""
    return lists.has_positive | (lists.num_negatives() > 0)


def _softmax_mean(p: Tensor, temperature: float, counts: Tensor, group=None) -> Tensor:
    """(L,) float64 ``sum_j q_j p_j`` of (L, N) probabilities with ``q = softmax(p / temperature)``.

    ``counts`` are (L, N) bool, or float weights: how often each value counts. 0 for
    a list without values. Over a ``group`` the values are spread: every rank receives the mean over
    all of them and the gradient of its own.
    """
    # Far on the side where the weight is 0; a NaN that does not count would reach the gradient.
    p = p.masked_fill(counts == 0, math.copysign(1e4, -temperature))
    # No exponent is above 0.
    highest = 1.0 if temperature > 0 else 0.0
    weight = ((p - highest) / temperature).exp()
    if counts.is_floating_point():
        weight = weight * counts
    sums = [weight.sum(1, dtype=torch.float64), (weight * p).sum(1, dtype=torch.float64)]
    total, moment = all_reduce_sum(torch.stack(sums), group)
    return moment / torch.where(total == 0, 1, total)


class DRLoss(StatelessRankingLoss):
    """:func:`mmrank.functional.dr_loss` of a batch.

    Scores are probabilities with a fixed margin, so they need no centring at test time. The mean of
    ``per_class`` is over all classes: those without a positive still push their negatives down.
    """

    takes_weights = True
    zero_without_positives = False
    fixed_settings = ('activation',)
    cost = 'scores'

    def __init__(self, **kwargs) -> None:
        super().__init__(activation='sigmoid', **kwargs)

    def losses(self, lists: RankedLists) -> Tensor:
        return _dr(lists)

    def counted(self, lists: RankedLists) -> Tensor:
        return lists.counts_of(_counts(lists))
