"""Partial AUC: the pairs of the highest negatives alone."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mmrank.autograd import can_sync
from mmrank.checks import check_within
from mmrank.distributed import all_gather_lists
from mmrank.losses.base import StatelessRankingLoss
from mmrank.losses.lists import RankedLists, positive_index
from mmrank.losses.pairs import pairwise_surrogate_sum
from mmrank.losses.pairs_smooth import OneSidedHuber
from mmrank.tensors import as_divisor, at_least_float32

#: Scores of a list, one in so many of which tells which ones need not be searched.
_SAMPLE = 2**14


class PartialAUCLoss(StatelessRankingLoss):
    """One-way partial AUC: ``mean_ij l(s_i - t_j)`` over the highest negatives t_j of each list.

    These are the ``ceil(max_fpr * n)`` highest of its n negatives, and their ties: the pairs of the
    ROC curve up to that false positive rate. All positives s_i count. l is
    :class:`mmrank.functional.OneSidedHuber`; ``max_fpr=1`` is :class:`AUCLoss` with it. Which
    negatives count is a constant of the gradient. Source: the estimator of Yang et al., When All We
    Need is a Piece of the Pie, ICML 2021; it is the least that the objective of SOPA, Zhu et al.,
    When AUC meets DRO, ICML 2022, has over its thresholds.

    The highest negatives of a batch are lower than those of the data set. With ``scope='global'``
    the negatives of all ranks compete. A list without negatives counts as 0 in the mean.

    Args:
        max_fpr: Share of the negatives that count, in (0, 1].
        tau: Margin in units of the (activated) scores, > 0. 1 is for logits.
        **kwargs: See :class:`mmrank.losses.RankingLoss`.

    Example:
        >>> loss = PartialAUCLoss(max_fpr=0.5, tau=0.5)
        >>> loss(torch.tensor([0.9, 0.2, 0.7, -0.5]), torch.tensor([1, 0, 0, 0]))
        tensor(0.1800)
    """

    takes_weights = True
    cost = 'scores'

    def __init__(self, max_fpr: float = 0.1, tau: float = 1.0, **kwargs) -> None:
        super().__init__(**kwargs)
        check_within('(0, 1]', max_fpr=max_fpr)
        self.max_fpr = max_fpr
        self.surrogate = OneSidedHuber(tau)

    def losses(self, lists: RankedLists) -> Tensor:
        number, index, mask = _highest_negatives(lists, self.max_fpr)
        total = pairwise_surrogate_sum(
            lists.pos,
            lists.scores.gather(1, index),
            self.surrogate,
            pos_mask=lists.pos_mask,
            neg_mask=mask,
            group=lists.group,
        )
        with torch.no_grad():
            pairs = lists.num_positives() * number
        return (lists.positives * total).sum(1) / as_divisor(pairs)


@torch.no_grad()
def _highest_negatives(lists: RankedLists, share: float) -> tuple[Tensor, Tensor, Tensor | None]:
    """The ``ceil(share * n)`` highest of the n negatives of a list, and their ties.

    NaN counts as high. With a ``group`` they are the highest of the negatives of all ranks.

    Returns:
        (L,) their number, of all ranks; of this rank their (L, K) columns, and how often each
        counts, 0 for padding, or None.
    """
    scores = lists.scores.detach()
    # 0.1 times 30 is above 3.
    number = (lists.num_negatives() * share - 1e-9).ceil().clamp(min=1).long()
    if lists.weight is not None:
        return _highest_weighted(lists, number)
    if lists.group is None and len(scores) == 1 and can_sync(scores):
        values = at_least_float32(scores[0]).numpy()
        found = _highest_of_one(values, lists.is_negative[0].numpy(), int(number))
        return torch.tensor([len(found)]), torch.from_numpy(found)[None], None
    every, counted = scores, lists.is_negative
    if lists.group is not None:
        every, counted = all_gather_lists(scores, counted, lists.group)
    # Without positives all scores may be 0, ties that would make the others wide.
    highest = lists.is_negative & lists.has_positive[:, None]
    if every.size(1):
        every = at_least_float32(every).masked_fill(~counted, -torch.inf)
        place = every.size(1) - number[:, None]
        if can_sync(every):
            # In a twentieth of the time of a sort.
            ordered = np.partition(every.numpy(), np.unique(place), axis=1)
            lowest = torch.from_numpy(ordered).gather(1, place)
        else:
            lowest = every.sort(1).values.gather(1, place)
        highest = highest & ~(scores < lowest)
    number = replace(lists, is_negative=highest).num_negatives()
    return number, *positive_index(highest)


def _highest_weighted(lists: RankedLists, number: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`_highest_negatives` where a negative of weight w counts as w negatives."""
    scores = at_least_float32(lists.scores.detach()).double()
    counted = lists.is_negative
    every = scores
    weight = lists.negatives.double()
    if lists.group is not None:
        joined, mask = all_gather_lists(
            torch.cat([scores, weight]), counted.repeat(2, 1), lists.group
        )
        every, weight = torch.where(mask, joined, 0).chunk(2)
        counted = mask[: len(scores)]
    every = every.nan_to_num(torch.inf, torch.inf, -torch.inf).masked_fill(~counted, -torch.inf)
    width = every.size(1)
    if can_sync(every) and counted.any():
        # So many have the weight that is asked for, if they are the lightest.
        width = min(width, int((number.max() / weight[counted].min()).ceil()))
    ordered, order = every.topk(width, dim=1)
    reached = weight.gather(1, order).cumsum(1) >= number[:, None]
    place = reached.byte().argmax(1, keepdim=True)
    lowest = torch.where(reached.any(1, keepdim=True), ordered.gather(1, place), -torch.inf)
    highest = lists.is_negative & lists.has_positive[:, None] & ~(scores < lowest)
    number = replace(lists, is_negative=highest).num_negatives()
    index, mask = positive_index(highest)
    return number, index, torch.where(mask, lists.negatives.gather(1, index), 0)


def _highest_of_one(values: np.ndarray, counted: np.ndarray, number: int) -> np.ndarray:
    """Places of the ``number`` highest of (n,) values that count, and their ties."""
    found = None
    sample = values[:: len(values) // _SAMPLE + 1]
    # A bound of a few more, so that few are left to search.
    place = int(len(sample) * (1 - 1.2 * number / max(len(values), 1))) - 1
    if place > 0:
        found = np.flatnonzero(~(values < np.partition(sample, place)[place]))
        found = found[counted[found]]
    if found is None or len(found) < number:
        # The sample was too small, or unlike the rest.
        found = np.flatnonzero(counted)
    if not len(found):
        return found
    own = values[found]
    place = len(own) - number
    return found[~(own < np.partition(own, place)[place])]
