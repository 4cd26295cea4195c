"""Partial AUC: the pairs of the highest negatives alone."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mmrank.losses.base import StatelessRankingLoss
from mmrank.losses.lists import RankedLists, negatives_of_all_ranks, positive_index
from mmrank.losses.pairs import OneSidedHuber
from mmrank.losses.pairs_smooth import pairwise_surrogate_sum
from mmrank.settings import check_within
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

    With ``scope='global'`` the negatives of all ranks compete. A list without negatives counts as 0
    in the mean.

    Args:
        max_fpr: Share of the negatives that count, in (0, 1].
        tau: Margin in units of the (activated) scores, > 0. 1 is for logits.

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
            on_host=lists.on_host,
        )
        with torch.no_grad():
            pairs = lists.num_positives() * number
        return (lists.positives * total).sum(1) / as_divisor(pairs)


@torch.no_grad()
def _highest_negatives(lists: RankedLists, share: float) -> tuple[Tensor, Tensor, Tensor | None]:
    """The ``ceil(share * n)`` highest of the n negatives of a list, and their ties.

    A negative of weight w is w negatives. NaN counts as high. Gives (L,) their number, of all ranks
    of a group; of this rank their (L, K) columns, and how often each counts, 0 for padding, or
    None.
    """
    scores = at_least_float32(lists.scores.detach())
    # 0.1 times 30 is above 3.
    number = (lists.num_negatives() * share - 1e-9).ceil().clamp(min=1)
    every, counts = negatives_of_all_ranks(scores, lists)
    if lists.on_host:
        rows = zip(every.numpy(), counts.numpy(), number.tolist())
        if lists.group is None and len(scores) == 1:
            found, _ = _highest_of_one(*next(rows), share)
            index = torch.from_numpy(found)[None]
            mask = counts.gather(1, index)
            number = mask.sum(1, dtype=torch.float64)
            return number, index, None if lists.weight is None else mask
        lowest = every.new_tensor([_highest_of_one(*row, share)[1] for row in rows])[:, None]
    else:
        lowest = _lowest(every, counts, number[:, None])
    # Without positives all scores may be 0, ties that would make the others wide.
    highest = lists.is_negative & lists.has_positive[:, None] & ~(scores < lowest)
    highest_lists = replace(lists, is_negative=highest)
    index, mask = positive_index(highest, on_host=lists.on_host)
    mask = highest_lists.negatives.gather(1, index) * mask
    return highest_lists.num_negatives(), index, mask


def _lowest(every: Tensor, counts: Tensor, number: Tensor) -> Tensor:
    """(L, 1) scores down to which (L, 1) numbers are reached, without waiting for a device."""
    if not every.size(1):
        return every.new_zeros(len(every), 1)
    ordered, order = every.masked_fill(counts == 0, -torch.inf).sort(1, descending=True)
    place = number - 1
    if counts.is_floating_point():
        passed = counts.gather(1, order).cumsum(1, dtype=torch.float64) < number
        place = passed.sum(1, keepdim=True).clamp(max=every.size(1) - 1)
    return ordered.gather(1, place.long())


def _highest_of_one(
    values: np.ndarray, counts: np.ndarray, number: float, share: float
) -> tuple[np.ndarray, float]:
    """Places of the ``number`` highest of (n,) values that count, and their ties; the lowest."""
    found = None
    sample = values[:: len(values) // _SAMPLE + 1]
    # A bound of a few more, so that few are left to search.
    place = int(len(sample) * (1 - 1.2 * share)) - 1
    if place > 0:
        found = np.flatnonzero(~(values < np.partition(sample, place)[place]))
        found = found[counts[found] > 0]
    if found is None or counts[found].sum(dtype=np.float64) < number:
        # The sample was too small, or unlike the rest.
        found = np.flatnonzero(counts)
    if not len(found):
        return found, -np.inf
    own = values[found]
    lowest = _lowest_of_weight(own, counts[found].astype(float), number)
    return found[~(own < lowest)], lowest


def _lowest_of_weight(values: np.ndarray, weights: np.ndarray, number: float) -> float:
    """The value down to which the weights of the highest of (n,) values reach a number."""
    # It is near here where the weights do not depend on the values: only those around are sorted.
    place = len(values) * (1 - number / weights.sum())
    room = 2 * len(values) ** 0.5
    low, high = np.clip([place - room, place + room], 0, len(values) - 1).astype(int)
    order = np.argpartition(values, [low, high])
    above = weights[order[high:]].sum()
    near = order[low:high]
    if not above < number <= above + weights[near].sum():
        above = 0.0
        near = order
    near = near[values[near].argsort()[::-1]]
    reached = np.searchsorted(above + weights[near].cumsum(), number)
    return float(values[near[min(reached, len(near) - 1)]])
