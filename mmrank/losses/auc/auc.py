"""Area under the ROC curve by pair surrogates, of two classes and of several."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmrank.checks import one_of
from mmrank.distributed import all_gather_lists, all_reduce_sum
from mmrank.errors import UserError
from mmrank.losses.base import RankingLoss, StatelessRankingLoss
from mmrank.losses.lists import RankedLists, like_scores, positive_index, split_lists
from mmrank.losses.options import PerClassOptions, RankingOptions, Unpack
from mmrank.losses.pairs.pair_sums import pairwise_surrogate_sum
from mmrank.losses.pairs.surrogates import OneSidedHuber, Sigmoid, clamp_infinite

# Surrogate and what its value is multiplied by: 1/2 makes the sigmoid a smooth 0-1 loss, so that
# the mean is a smooth 1 - AUC.
_SURROGATES = {'sigmoid': (Sigmoid, 0.5), 'one_sided_huber': (OneSidedHuber, 1.0)}
_MAUC_SURROGATES = ('square', 'one_sided_huber')


def auc_loss(
    scores: Tensor,
    is_positive: Tensor,
    *,
    mask: Tensor | None = None,
    surrogate: str = 'sigmoid',
    tau: float = 0.1,
) -> Tensor:
    """AUC loss of each list: ``mean_ij l(s_i - t_j)`` over positives i and negatives j.

    Every pair has the same weight, whatever its rank: a baseline of AP losses.

    See :func:`split_lists` for the lists and :class:`mmrank.losses.AUCLoss` for the options.

    Returns:
        Scalar, or (L,) losses, >= 0, with the sigmoid at most 1, at least float32; 0, still
        attached to the graph, for a list without positives or without negatives.

    Example:
        >>> auc_loss(torch.tensor([0.9, 0.2, 0.5, -0.5]), torch.tensor([1, 1, 0, 0]), tau=0.01)
        tensor(0.2500)
    """
    one_of('surrogate', surrogate, _SURROGATES)
    kind, factor = _SURROGATES[surrogate]
    lists = split_lists(scores, is_positive, mask)
    return like_scores(_auc(lists, kind(tau), factor), scores)


def _auc(lists: RankedLists, surrogate: Sigmoid | OneSidedHuber, factor: float) -> Tensor:
    total = pairwise_surrogate_sum(
        lists.pos,
        lists.scores,
        surrogate,
        pos_mask=lists.pos_mask,
        neg_mask=lists.is_negative,
        group=lists.group,
    )
    with torch.no_grad():
        pairs = (lists.pos_mask.sum(1).double() * lists.num_negatives()).clamp(min=1)
    return factor * total.sum(1) / pairs


class AUCLoss(StatelessRankingLoss):
    """:func:`mmrank.functional.auc_loss` of a batch.

    A list without negatives counts as 0 in the mean of ``reduction='mean'``.

    Args:
        surrogate: ``sigmoid``: ``l(x) = sigmoid(-x / tau)``, a smooth 1 - AUC;
            ``one_sided_huber``: :class:`mmrank.functional.OneSidedHuber`, in near-linear time.
        tau: Temperature or margin in units of the (activated) scores, > 0. 0.1 is for cosines; take
            1 for logits.
        **kwargs: See :class:`mmrank.losses.RankingLoss`.
    """

    def __init__(
        self, surrogate: str = 'sigmoid', tau: float = 0.1, **kwargs: Unpack[RankingOptions]
    ) -> None:
        super().__init__(**kwargs)
        one_of('surrogate', surrogate, _SURROGATES)
        kind, self.factor = _SURROGATES[surrogate]
        self.surrogate = kind(tau)
        if kind is OneSidedHuber:
            self.cost = 'scores'

    def losses(self, lists: RankedLists) -> Tensor:
        return _auc(lists, self.surrogate, self.factor)


def mauc_of_classes(
    lists: RankedLists, surrogate: str, huber: OneSidedHuber
) -> tuple[Tensor, Tensor]:
    """(C,) float64 losses and (C,) bool whether a class has pairs."""
    sides = _Sides.of(lists.is_positive, lists.is_negative, lists.group)
    if surrogate == 'square':
        pairs = _square_means(lists.scores, sides, huber.tau)
    else:
        pairs = _huber_means(lists.scores, sides, huber)
    has_pairs = (sides.num_neg > 0) & (sides.num_pos > 0)
    others = has_pairs.sum(1)
    return torch.where(has_pairs, pairs, 0).sum(1) / others.clamp(min=1), others > 0


class _Sides(NamedTuple):
    """Samples (C, N) and groups of negatives: members (G, N), counts (C, 1 or G).

    G = C + 1 groups: the classes, and samples of no class.
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
    of_values = torch.cat([pos.sum(1, keepdim=True), neg @ members], 1)
    of_squares = torch.cat([pos.square().sum(1, keepdim=True), neg.square() @ members], 1)
    first, second = all_reduce_sum(torch.stack([of_values, of_squares]), sides.group)
    num_pos = sides.num_pos.clamp(min=1)
    num_neg = sides.num_neg.clamp(min=1)
    pos1 = first[:, :1] / num_pos
    neg1 = first[:, 1:] / num_neg
    pos2 = second[:, :1] / num_pos
    neg2 = second[:, 1:] / num_neg
    squared = pos2 - 2 * pos1 * neg1 + neg2
    return 1 - 2 * (pos1 - neg1) / tau + squared / tau**2


def _huber_means(scores: Tensor, sides: _Sides, huber: OneSidedHuber) -> Tensor:
    """(C, G) means over the pairs of two classes, group by group."""
    index, pos_mask = positive_index(sides.is_positive)
    pos = scores.gather(1, index)
    if sides.group is not None:
        pos, pos_mask = all_gather_lists(pos, pos_mask, sides.group)
    sums = []
    for member in sides.members:
        counted = sides.is_negative & member
        total = pairwise_surrogate_sum(
            pos, scores, huber, pos_mask=pos_mask, neg_mask=counted, group=sides.group
        )
        sums.append(total.sum(1))
    return torch.stack(sums, 1) / (sides.num_pos * sides.num_neg).clamp(min=1)


class MAUCLoss(RankingLoss):
    """Multi-class AUC loss of the columns of a classifier, one against one.

    For class i the mean over the other classes j of ``mean_{x in i, y in j} l(f_i(x) - f_i(y))``,
    so a rare class counts as much as a frequent one, also among the negatives. Source: Yang et al.,
    Learning with Multiclass AUC: Theory and Algorithms, TPAMI 2021, eq. 1. Samples of no class are
    one more class of negatives: with one column the loss is the binary AUC. A sample with several
    classes counts in each of them; it is never a negative of its own.

    Args:
        surrogate: ``square``: ``l(x) = (1 - x/tau)^2``, O(C^2 n) from sums and sums of squares of
            the classes, without a pair; ``one_sided_huber``:
            :class:`mmrank.functional.OneSidedHuber`, by sorting where the matrix would be large.
        tau: Margin in units of the (activated) scores, > 0.
        **kwargs: See :class:`mmrank.losses.RankingLoss`, except ``mode``; ``reduction`` is over
            the classes that have a pair.
    """

    zero_without_positives = True
    no_retrieval = 'compares the classes of a classifier'
    for_retrieval = 'AUCLoss'

    def __init__(
        self, surrogate: str = 'square', tau: float = 1.0, **kwargs: Unpack[PerClassOptions]
    ) -> None:
        super().__init__(mode='per_class', **kwargs)
        one_of('surrogate', surrogate, _MAUC_SURROGATES)
        self.surrogate = surrogate
        self.huber = OneSidedHuber(tau)

    def loss_of_groups(self, *given) -> Tensor:
        raise UserError(
            'MAUCLoss compares the columns of a classifier, and group= has one column. Fix: '
            'AUCLoss(), the loss of one column'
        )

    def list_losses(self, lists: RankedLists) -> Tensor:
        if lists.list_classes is not None:
            self._check_retrieval()
        losses, has_pairs = mauc_of_classes(lists, self.surrogate, self.huber)
        return self.reduce_lists(losses, has_pairs)
