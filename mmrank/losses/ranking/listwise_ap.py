"""List-wise AP (DIR): average precision of a soft histogram of the scores."""

from typing import cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mmrank.distributed import all_reduce_sum
from mmrank.losses.base import StatelessRankingLoss
from mmrank.losses.lists import RankedLists
from mmrank.losses.plain_lists import like_scores, split_lists
from mmrank.settings import check_at_least, check_score_range
from mmrank.tensors import as_divisor, block_width


def listwise_ap_loss(
    scores: Tensor,
    is_positive: Tensor,
    *,
    mask: Tensor | None = None,
    num_bins: int = 20,
    score_range: tuple[float, float] = (-1.0, 1.0),
) -> Tensor:
    """List-wise AP loss of each list.

    ``1 - sum_m h+_m/n+ * H+_m/H_m``: h+ is the soft histogram of the positives, H+ and H are the
    running sums of the histograms of the positives and of all scores, from the highest bin down.
    Source: Revaud et al., Learning with Average Precision: Training Image Retrieval with a Listwise
    Loss, ICCV 2019, eqs. 5 to 8. With ``num_bins=k + 1`` and cosines this is FastAP (Cakir et al.,
    CVPR 2019) with k bins.

    See :func:`split_lists` for the lists and :class:`mmrank.losses.ListwiseAPLoss` for the options.

    Example:
        >>> scores, is_positive = torch.tensor([0.9, 0.2, 0.5, -0.5]), torch.tensor([1, 1, 0, 0])
        >>> listwise_ap_loss(scores, is_positive, num_bins=21)
        tensor(0.1667)
    """
    _check(num_bins, score_range)
    lists = split_lists(scores, is_positive, mask)
    return like_scores(_listwise_ap(lists, num_bins, score_range), scores)


def _listwise_ap(lists: RankedLists, num_bins: int, score_range: tuple[float, float]) -> Tensor:
    own = _soft_histogram(lists.pos, lists.positives, num_bins, score_range)
    others = _soft_histogram(lists.scores, lists.negatives, num_bins, score_range)
    above = all_reduce_sum(others, lists.group).cumsum(1)
    total = own.cumsum(1) + above
    # The positives of a bin times the share of negatives down to it: the histogram of the positives
    # sums to n+, so this is 1 - AP.
    share = above / torch.where(total == 0, 1, total)
    number = lists.num_positives()
    return (own * share).sum(1) / as_divisor(number)


def _check(num_bins: int, score_range: tuple[float, float]) -> None:
    check_at_least(2, num_bins=num_bins)
    check_score_range(score_range)


def _soft_histogram(
    scores: Tensor, counts: Tensor, num_bins: int, score_range: tuple[float, float]
) -> Tensor:
    """(L, num_bins) float64 counts: each score is split linearly between its two nearest bins.

    Bin m has its centre at ``high - m (high - low) / (num_bins - 1)``; a score outside of the range
    counts for the last bin on its side and has the gradient 0. Source: Revaud et al. (ICCV 2019),
    eq. 5, without its pass over all bins.
    """
    width = block_width(len(scores))
    if scores.size(1) <= width:
        return _histogram(scores, counts, num_bins, score_range)
    # What the gradient needs of a block is computed again: for all scores at once it would take ten
    # times their memory.
    total = scores.new_zeros(len(scores), num_bins, dtype=torch.float64)
    for block, counted in zip(scores.split(width, 1), counts.split(width, 1)):
        part = checkpoint(_histogram, block, counted, num_bins, score_range, use_reentrant=False)
        total = total + cast(Tensor, part)
    return total


def _histogram(
    scores: Tensor, counts: Tensor, num_bins: int, score_range: tuple[float, float]
) -> Tensor:
    low, high = score_range
    width = (high - low) / (num_bins - 1)
    place = (high - scores.double().clamp(low, high)) / width
    with torch.no_grad():
        first = place.nan_to_num(0).long().clamp(max=num_bins - 2)
    share = place - first
    histogram = share.new_zeros(scores.size(0), num_bins)
    mask = counts > 0
    histogram = histogram.scatter_add(1, first, torch.where(mask, counts * (1 - share), 0))
    return histogram.scatter_add(1, first + 1, torch.where(mask, counts * share, 0))


class ListwiseAPLoss(StatelessRankingLoss):
    """:func:`mmrank.functional.listwise_ap_loss` of a batch.

    Args:
        num_bins: Number of bins, >= 2.
        score_range: Centres of the last and of the first bin in units of the (activated) scores;
            scores outside count there and have no gradient. (-1, 1) is for cosines.
    """

    takes_weights = True
    cost = 'scores'

    def __init__(
        self, num_bins: int = 20, score_range: tuple[float, float] = (-1.0, 1.0), **kwargs
    ) -> None:
        super().__init__(**kwargs)
        _check(num_bins, score_range)
        low, high = score_range
        self.num_bins = num_bins
        self.score_range = (low, high)

    def losses(self, lists: RankedLists) -> Tensor:
        return _listwise_ap(lists, self.num_bins, self.score_range)
