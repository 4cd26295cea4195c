"""BlackBox AP: exact average precision, gradient by a perturbed ranking."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from mmrank.losses.base import StatelessRankingLoss
from mmrank.losses.lists import RankedLists
from mmrank.losses.pairs import Places, given_gradient
from mmrank.losses.plain_lists import like_scores, split_lists
from mmrank.settings import check_not_negative, check_positive
from mmrank.tensors import as_divisor, block_width, clamp_infinite, column_blocks


def blackbox_ap_loss(
    scores: Tensor,
    is_positive: Tensor,
    *,
    mask: Tensor | None = None,
    lam: float = 4.0,
    margin: float = 0.02,
) -> Tensor:
    """BlackBox AP loss of each list.

    The value is ``1 - AP`` of the scores after positives were lowered and negatives raised by
    ``margin / 2``. The ranks are the solution of a linear problem in the scores, so their gradient
    is taken from a second ranking, of ``s' = s + lam * dL/drank``: ``dL/ds = (rank(s') - rank(s)) /
    lam``. The rank among the positives is a constant, as in the authors' code. Source: Rolinek et
    al., Optimizing Rank-Based Metrics with Blackbox Differentiation, CVPR 2020, algorithm 1 and
    section 4.

    Ranks are 1, 2, ... and L is the loss of one list, whatever factor the incoming gradient has.
    The authors divide ranks by the list's length n and let the mean over Q queries into the
    perturbation; both agree for Q = n, where every image of a batch is a query, and ``lam`` is the
    authors' lambda times n/Q otherwise.

    See :func:`split_lists` for the lists and :class:`mmrank.losses.BlackBoxAPLoss` for the options.

    Ties count as ranked above, as in :func:`average_precision`. Infinite scores act as +-1e30; NaN
    gives NaN. O(N log P) time.

    Example:
        >>> blackbox_ap_loss(torch.tensor([0.9, 0.2, 0.5, -0.5]), torch.tensor([1, 1, 0, 0]))
        tensor(0.1667)
    """
    check_positive(lam=lam)
    check_not_negative(margin=margin)
    return like_scores(_blackbox_ap(split_lists(scores, is_positive, mask), lam, margin), scores)


def _blackbox_ap(lists: RankedLists, lam: float, margin: float) -> Tensor:
    pos = lists.pos
    neg = lists.scores
    mask = lists.pos_mask
    with torch.no_grad():
        s = clamp_infinite(pos.double()) - margin / 2
        # NaN for lists with positives that have a NaN anywhere.
        broken = (s.isnan() & mask).any(1).double()
        missing = (neg.isnan() & lists.is_negative).any(1).double()
        if lists.group is not None:
            dist.all_reduce(missing, group=lists.group)
        is_broken = (broken + missing > 0) & lists.has_positive
        spoil = torch.where(is_broken, torch.nan, 0.0)
        s = s.nan_to_num(0)
        number = lists.positives.double()
        num_pos = as_divisor(number.sum(1))
        before = _Ranks(s, lists, margin)
        precision = before.among / before.rank
        risk = (number * torch.where(mask, 1 - precision, 0)).sum(1) / num_pos
        slope = precision / before.rank / num_pos[:, None]
        after = _Ranks(s + lam * slope, lists, margin)
        grad_pos = torch.where(mask, number * (after.rank - before.rank) / lam, 0)
        grad_neg = torch.empty_like(neg, dtype=torch.promote_types(neg.dtype, torch.float32))
        for part, t in _raised(neg, margin):
            passed = before.weight_not_above(t) - after.weight_not_above(t)
            passed = torch.where(lists.is_negative[:, part], passed / lam, 0)
            if lists.weight is not None:
                passed = passed * lists.weight[:, part]
            grad_neg[:, part] = passed + spoil[:, None]
    return given_gradient(risk + spoil, (pos, grad_pos + spoil[:, None]), (neg, grad_neg))


def _raised(neg: Tensor, margin: float) -> Iterator[tuple[slice, Tensor]]:
    """Yield blocks of columns of (L, N) scores, and what they are in float64, half a margin up."""
    for part in column_blocks(neg.size(1), block_width(len(neg))):
        yield part, clamp_infinite(neg[:, part].double()) + margin / 2


class _Ranks:
    """(L, P) float64 ranks of finite positives ``among`` themselves and, ``rank``, among all.

    Ties count as above.
    """

    def __init__(self, pos: Tensor, lists: RankedLists, margin: float) -> None:
        mask = lists.pos_mask
        end = torch.full_like(pos, torch.inf)
        ordered, order = torch.where(mask, pos, end).sort(1)
        # How many of them are among the k lowest.
        self.lowest = pad(lists.positives.double().gather(1, order).cumsum(1), (1, 0))
        lower = torch.searchsorted(ordered, pos.contiguous())
        # At or below a score is what is below it once it is a step lower.
        self._places = Places(ordered.nextafter(-end), lists.scores.size(1), lists.on_host)
        # By the number of positives that do not score above it, every
        # negative is counted once; one that passes k of them is above the k lowest.
        counts = torch.zeros_like(self.lowest)
        for part, neg in _raised(lists.scores, margin):
            counted = lists.negatives[:, part].double()
            counts.scatter_add_(1, self.not_above(neg).long(), counted)
        passed = counts.flip(1).cumsum(1).flip(1)
        if lists.group is not None:
            dist.all_reduce(passed, group=lists.group)
        above = passed.gather(1, (lower + 1).clamp(max=pos.size(1)))
        # Padding has rank 1, which divides no zero by zero.
        self.among = torch.where(mask, self.lowest[:, -1:] - self.lowest.gather(1, lower), 1)
        self.rank = torch.where(mask, self.among + above, 1)

    def weight_not_above(self, neg: Tensor) -> Tensor:
        """(L, n) float64, :meth:`not_above` with each positive as often as it counts."""
        return self.lowest.gather(1, self.not_above(neg).long())

    def not_above(self, neg: Tensor) -> Tensor:
        """(L, n) number of positives that do not score above (L, n) scores."""
        neg = neg.nan_to_num(0).contiguous()
        places = torch.empty_like(neg, dtype=torch.int32)
        self._places(slice(0, len(neg)), neg, neg, places)
        return places


class BlackBoxAPLoss(StatelessRankingLoss):
    """:func:`mmrank.functional.blackbox_ap_loss` of a batch.

    Args:
        lam: Strength of the perturbation, > 0.
        margin: Distance by which positives should lead, in units of the (activated) scores, >= 0.
    """

    takes_weights = True
    cost = 'scores'

    def __init__(self, lam: float = 4.0, margin: float = 0.02, **kwargs) -> None:
        super().__init__(**kwargs)
        check_positive(lam=lam)
        check_not_negative(margin=margin)
        self.lam = lam
        self.margin = margin

    def losses(self, lists: RankedLists) -> Tensor:
        return _blackbox_ap(lists, self.lam, self.margin)
