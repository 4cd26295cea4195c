"""SmoothAP: average precision with sigmoids for the ranks."""

import torch
from torch import Tensor

from mmrank.losses.base import StatelessRankingLoss
from mmrank.losses.lists import RankedLists
from mmrank.losses.pairs_graded import CountsQuality, graded_pair_sum, relevances
from mmrank.losses.pairs_smooth import Sigmoid, sum_over_negatives, sum_over_positives
from mmrank.losses.plain_lists import like_scores, split_lists
from mmrank.tensors import as_divisor


def smooth_ap_loss(
    scores: Tensor,
    is_positive: Tensor,
    *,
    mask: Tensor | None = None,
    tau: float = 0.01,
    relevance: Tensor | None = None,
) -> Tensor:
    """SmoothAP of each list.

    ``1 - mean_i R+_i / (R+_i + sum_j G(t_j - s_i))`` with the rank among the positives ``R+_i = 1 +
    sum_{k != i} G(s_k - s_i)`` and ``G(x) = sigmoid(x / tau)``. Source: Brown et al., Smooth-AP:
    Smoothing the Path Towards Large-Scale Image Retrieval, ECCV 2020, eqs. 5 to 7.

    See :func:`split_lists` for the lists, :class:`mmrank.losses.SmoothAPLoss` for the options.
    Memory does not grow with the number of pairs. ``relevance`` u has the shape of the scores and
    is read at the positives, where it is > 0; no gradient, only ratios count. The loss is then ``1
    - GAP / (sum_i u_i / n+)`` of :func:`mmrank.functional.graded_average_precision` with that
    sigmoid,

    ``1 / (sum_i u_i) sum_i [u_i sum_j G(t_j - s_i) + sum_k (u_i - u_k)_+ G(s_k - s_i)] / rank_i``.

    Example:
        >>> smooth_ap_loss(torch.tensor([0.9, 0.5, 0.2, -0.5]), torch.tensor([1, 0, 1, 0]))
        tensor(0.1667)
    """
    lists = split_lists(scores, is_positive, mask, relevance)
    return like_scores(_smooth_ap(lists, Sigmoid(tau), relevances(lists)), scores)


def _smooth_ap(lists: RankedLists, sigmoid: Sigmoid, relevance: Tensor | None = None) -> Tensor:
    mask = lists.pos_mask
    number = lists.positives
    # The surrogate is twice the sigmoid of the paper.
    above = 0.5 * sum_over_negatives(lists, sigmoid)
    among = 0.5 * sum_over_positives(lists, sigmoid)
    # A positive meets itself at 1/2; the paper counts it as 1.
    rank = among + 0.5 + above
    if relevance is not None:
        relevance = torch.where(mask, relevance.detach().double(), 0)
        share = torch.where(mask, number / rank.detach(), 0)
        total, rows = graded_pair_sum(
            lists.pos, number, relevance, 0.5 * share, sigmoid, lists.on_host
        )
        risk = torch.where(mask, number * (relevance * above + 0.5 * rows) / rank, 0).sum(1)
        weight = (number * relevance).sum(1)
        # The rows have no gradient, their weighted sum has.
        return (risk + (total - total.detach())) / as_divisor(weight)
    total = lists.num_positives()
    return torch.where(mask, number * above / rank, 0).sum(1) / as_divisor(total)


class SmoothAPLoss(CountsQuality, StatelessRankingLoss):
    """:func:`mmrank.functional.smooth_ap_loss` of a batch.

    The query is left out of its own list; the authors' code counts it as a first positive.

    Args:
        tau: Temperature in units of the (activated) scores, > 0. The paper's 0.01 is for cosines;
            beyond a few tau a pair has no gradient.
        quality: How much the IoU of a positive's box counts, q in [0, 1]: its relevance is ``1 - q
            + q IoU``. None: 0.9 where a head passes the IoUs, 0 elsewhere. 0 is the paper's.
    """

    takes_weights = True
    saturation_advice = (
        'There are too many negatives for a positive: raise the learning rate or loss_weight, or '
        'use mmrank.StableAPLoss, which rescales itself'
    )

    def __init__(self, tau: float = 0.01, quality: float | None = None, **kwargs) -> None:
        super().__init__(**kwargs)
        if quality is not None:
            self.count_quality(quality)
        self.surrogate = Sigmoid(tau)

    def losses(self, lists: RankedLists) -> Tensor:
        relevance = None if lists.values is None else self.relevance(lists)
        return _smooth_ap(lists, self.surrogate, relevance)

    def extra_diagnostics(self, losses: Tensor, has_positive: Tensor) -> dict[str, Tensor]:
        """``argument``: the x whose ``x/(1 + x)`` is the mean loss."""
        risk = losses.sum() / has_positive.sum().clamp(min=1)
        return {'argument': risk / (1 - risk).clamp(min=1e-12)}
