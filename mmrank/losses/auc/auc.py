"""Area under the ROC curve by pair surrogates, of two classes and of several."""

import torch
from torch import Tensor

from mmrank.distributed import all_reduce_sum
from mmrank.losses.base import RankingLoss, StatelessRankingLoss
from mmrank.losses.lists import RankedLists
from mmrank.losses.pairs import OneSidedHuber
from mmrank.losses.pairs_smooth import Sigmoid, sum_over_negatives
from mmrank.losses.plain_lists import like_scores, split_lists
from mmrank.settings import check_positive, one_of
from mmrank.tensors import as_divisor, clamp_infinite

# Surrogate and what its value is multiplied by: 1/2 makes the sigmoid a smooth 0-1 loss, so that
# the mean is a smooth 1 - AUC.
_SURROGATES = {'sigmoid': (Sigmoid, 0.5), 'one_sided_huber': (OneSidedHuber, 1.0)}


def auc_loss(
    scores: Tensor,
    is_positive: Tensor,
    *,
    mask: Tensor | None = None,
    surrogate: str = 'sigmoid',
    tau: float = 0.1,
) -> Tensor:
    """AUC loss of each list: ``mean_ij l(s_i - t_j)`` over positives i and negatives j.

    Every pair has the same weight, whatever its rank: a baseline of AP losses. A list without
    negatives has the loss 0, too. See :func:`split_lists` for the lists and
    :class:`mmrank.losses.AUCLoss` for the options.

    Example:
        >>> auc_loss(torch.tensor([0.9, 0.2, 0.5, -0.5]), torch.tensor([1, 1, 0, 0]), tau=0.01)
        tensor(0.2500)
    """
    one_of('surrogate', surrogate, _SURROGATES)
    kind, factor = _SURROGATES[surrogate]
    lists = split_lists(scores, is_positive, mask)
    return like_scores(_auc(lists, kind(tau), factor), scores)


def _auc(lists: RankedLists, surrogate: Sigmoid | OneSidedHuber, factor: float) -> Tensor:
    total = sum_over_negatives(lists, surrogate)
    with torch.no_grad():
        pairs = lists.num_positives() * lists.num_negatives()
    return factor * (lists.positives * total).sum(1) / as_divisor(pairs)


class AUCLoss(StatelessRankingLoss):
    """:func:`mmrank.functional.auc_loss` of a batch.

    A list without negatives counts as 0 in the mean.

    Args:
        surrogate: ``sigmoid``: ``l(x) = sigmoid(-x / tau)``, a smooth 1 - AUC;
            ``one_sided_huber``: :class:`mmrank.functional.OneSidedHuber`, in near-linear time.
        tau: Temperature or margin in units of the (activated) scores, > 0. 0.1 is for cosines; take
            1 for logits.
    """

    takes_weights = True

    def __init__(self, surrogate: str = 'sigmoid', tau: float = 0.1, **kwargs) -> None:
        super().__init__(**kwargs)
        one_of('surrogate', surrogate, _SURROGATES)
        kind, self.factor = _SURROGATES[surrogate]
        self.surrogate = kind(tau)
        if kind is OneSidedHuber:
            self.cost = 'scores'

    def losses(self, lists: RankedLists) -> Tensor:
        return _auc(lists, self.surrogate, self.factor)


def _mauc_of_classes(lists: RankedLists, tau: float) -> Tensor:
    """(C,) float64 losses, 0 for a class without pairs."""
    x = clamp_infinite(lists.scores.double())
    # Classes of negatives, (N, C + 1): samples of no class are the last.
    members = torch.cat([lists.is_positive, ~lists.is_positive.any(0, keepdim=True)])
    members = members.double().t()

    def by_class(values: Tensor) -> Tensor:
        """(C, 1 + C + 1) sums over the positives of a class and over its negatives, by class."""
        pos = torch.where(lists.is_positive, values, 0).sum(1, keepdim=True)
        return torch.cat([pos, torch.where(lists.is_negative, values, 0) @ members], 1)

    weight = torch.ones_like(x) if lists.weight is None else lists.weight.double()
    moments = [weight, weight * x, weight * x.square()]
    sums = torch.stack([by_class(values) for values in moments])
    number, first, second = all_reduce_sum(sums, lists.group)
    has_pairs = (number[:, :1] > 0) & (number[:, 1:] > 0)
    first, second = torch.stack([first, second]) / as_divisor(number)
    pos = first[:, :1]
    neg = first[:, 1:]
    squared = second[:, :1] - 2 * pos * neg + second[:, 1:]
    means = 1 - 2 * (pos - neg) / tau + squared / tau**2
    return torch.where(has_pairs, means, 0).sum(1) / has_pairs.sum(1).clamp(min=1)


class MAUCLoss(RankingLoss):
    """Multi-class AUC loss of the columns of a classifier, one against one.

    For class i the mean over the other classes j of ``mean_{x in i, y in j} l(f_i(x) - f_i(y))``
    with ``l(x) = (1 - x/tau)^2``, so a rare class counts as much as a frequent one, also among the
    negatives. O(C^2 n), from sums and sums of squares of the classes, without a pair. Source: Yang
    et al., Learning with Multiclass AUC: Theory and Algorithms, TPAMI 2021, eq. 1. Samples of no
    class are one more class of negatives: with one column the loss is the binary AUC. A sample with
    several classes counts in each of them; it is never a negative of its own. The mean is over the
    classes that have a pair.

    Args:
        tau: Margin in units of the (activated) scores, > 0.
    """

    takes_weights = True
    zero_without_positives = True
    no_groups = 'compares the columns of a classifier, and group= has one. Fix: AUCLoss()'
    no_retrieval = 'compares the classes of a classifier'
    for_retrieval = 'AUCLoss'
    fixed_settings = ('mode',)

    def __init__(self, tau: float = 1.0, **kwargs) -> None:
        super().__init__(mode='per_class', **kwargs)
        check_positive(tau=tau)
        self.tau = tau

    def list_losses(self, lists: RankedLists) -> Tensor:
        if lists.list_classes is not None:
            self.check_retrieval()
        return _mauc_of_classes(lists, self.tau)

    def counted(self, lists: RankedLists) -> Tensor:
        """A class without negatives has no pair either."""
        return lists.counts_of(lists.has_positive & (lists.num_negatives() > 0))
