"""The update rule of AP-Loss, Rank & Sort and aLRP, and the base of these losses.

They count how many scores lie above a positive with the step ``H(x) = clamp(x / (2 delta) + 1/2, 0,
1)`` of AP-Loss (CVPR 2019), eq. 13, in near-linear time. H has no useful derivative, so each loss
says what the error of a positive is, and :meth:`RankCounts.loss` makes it a gradient.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mmrank.losses.base import RankingLoss
from mmrank.losses.lists import RankedLists, all_positives
from mmrank.losses.pairs import count_above, given_gradient
from mmrank.losses.pairs_graded import graded_pairs
from mmrank.losses.pairs_smooth import Pairs
from mmrank.losses.plain_lists import split_lists
from mmrank.settings import check_positive
from mmrank.state import MeanPositiveScore
from mmrank.tensors import as_divisor, check_tensors, shares

#: What the mean positive logit of a batch is compared with. No setting: the loss itself has no
#: range.
USUAL_LOGITS = (-5.0, 5.0)


def target_lists(
    logits: Tensor, targets: Tensor, mask: Tensor | None = None, values: Tensor | None = None
) -> RankedLists:
    """Lists by targets in (0, 1] for positives and 0 for negatives; else ValueError.

    What the mask leaves out may have any target.
    """
    check_tensors(logits=logits, targets=targets, mask=mask)
    if mask is not None and mask.shape == targets.shape:
        targets = targets.masked_fill(mask == 0, 0)
    # The scores themselves, arguments swapped, would pass for labels.
    fix = 'targets > 0 if these are positives, and mask=(targets >= 0) to leave those below 0 out'
    return split_lists(logits, shares('targets', targets, fix) > 0, mask, values)


def positive_pairs(
    lists: RankedLists, grade: Tensor, delta: float
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield rows i, (L, rows, P) ``c_k (u_i - u_k)_+`` and ``H(s_k - s_i)``, in blocks.

    u is the (L, P) ``grade`` of the positives, c how often each counts. At padding k the first is
    0, the second any number.
    """
    for part, gaps, x in graded_pairs(lists.pos, lists.positives, grade, lists.on_host):
        yield part, gaps, (0.5 - x / (2 * delta)).clamp(0, 1)


class RankCounts:
    """How many scores lie above each positive of L lists, by the step H.

    Attributes:
        false_positives: (L, P) float64 ``N_FP(i) = sum_j c_j H(t_j - s_i)``, c how often each
            counts.
        positives: (L, P) float64 ``sum_k c_k H(s_k - s_i) - 1/2``: a positive does not meet itself.
        number: (L, P) float64 c of the positives.
        total: (L,) float64 sum of c, 1 for a list without positives.
    """

    def __init__(self, lists: RankedLists, delta: float) -> None:
        self.lists = lists
        self.delta = delta
        self.relevance: Tensor | None = None
        pos = lists.pos
        mask = lists.pos_mask
        with torch.no_grad():
            pairs = Pairs(pos, mask, lists.scores, lists.negatives, lists.on_host)
            found = count_above(pairs, delta, lists.group)
            self.false_positives, self._spread_over_negatives = found
            pairs = pairs._replace(neg=pos.double(), neg_mask=lists.positives)
            among, self._spread = count_above(pairs, delta)
        # A positive of weight below 1 meets less than itself.
        least = 0.0 if lists.pos_weight is None else -0.5
        self.positives = torch.where(mask, (among - 0.5).clamp(min=least), 0)
        self.number = lists.positives.double()
        self.total = as_divisor(self.number.sum(1))

    def spread_over_positives(self, weight: Tensor) -> Tensor:
        """(L, P) ``sum_i w_i H(s_k - s_i)`` of (L, P) weights w, k = i included; 0 at padding."""
        found = self._spread(weight)
        return torch.where(self.number > 0, found / self.number, 0)

    def grade(self, relevance: Tensor) -> None:
        """Make a positive a false positive of positives of more relevance u, (L, P) float64.

        N_FP(i) becomes ``u_i N_FP(i) + sum_k c_k (u_i - u_k)_+ H(s_k - s_i)``, the total ``sum_i
        c_i u_i``.
        """
        rows = torch.zeros_like(relevance)
        with torch.no_grad():
            for part, gaps, above in positive_pairs(self.lists, relevance, self.delta):
                rows[:, part] = (gaps * above).sum(2)
        self.false_positives = relevance * self.false_positives + rows
        self.total = as_divisor((self.number * relevance).sum(1))
        self.relevance = relevance

    def loss(self, error: Tensor, value: Tensor | None = None, least: float = 0.0) -> Tensor:
        """(L,) mean of (L, P) errors, whose gradient is their identity update.

        Positive i receives ``-c_i error_i / total`` and negative j ``c_j sum_i c_i error_i H(t_j -
        s_i) / (N_FP(i) total)``: what the positives are pulled up by is what the negatives above
        them are pushed down by; graded, also the positives of less relevance. Source: Rank & Sort
        (ICCV 2021), eqs. 3 to 6; AP-Loss (CVPR 2019), eqs. 9 to 12.

        Args:
            error: (L, P) float64 without gradient, 0 at padding.
            value: The same, if the loss is the mean of other numbers than the errors.
            least: Up to so many false positives there is no update. Where errors do not vanish with
                their number, rounding would be divided by rounding.
        """
        lists = self.lists
        value = (self.number * (error if value is None else value)).sum(1) / self.total
        has_error = self.false_positives > least
        error = torch.where(has_error, self.number * error, 0) / self.total.unsqueeze(1)
        spread = torch.where(has_error, error / self.false_positives, 0)
        grad = -error
        with torch.no_grad():
            if self.relevance is not None:
                for part, gaps, above in positive_pairs(lists, self.relevance, self.delta):
                    grad += torch.bmm(spread[:, part].unsqueeze(1), above.mul_(gaps)).squeeze(1)
                spread = self.relevance * spread
            grad_neg = self._spread_over_negatives(spread)
        return given_gradient(value, (lists.pos, grad), (lists.scores, grad_neg))


class ErrorDrivenLoss(RankingLoss):
    """Base of AP-Loss, aLRP and Rank & Sort: a subclass defines :meth:`losses`.

    The mean positive logit is tracked for :meth:`logit_centre` alone, not for the loss.

    Args:
        delta: Half width of the step in units of the raw logits, > 0.
    """

    takes_weights = True
    zero_without_positives = True
    takes_logits = True  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]  # always
    fixed_settings = ('activation',)
    #: Weight of the new batch in the mean positive logit.
    momentum = 0.01

    def __init__(self, delta: float, **kwargs) -> None:
        super().__init__(activation='none', **kwargs)
        check_positive(delta=delta)
        self.delta = delta
        self.mean_positive = MeanPositiveScore(1, self.momentum, score_range=USUAL_LOGITS)

    def part_losses(self, parts: Sequence[RankedLists]) -> Tensor | dict[str, Tensor]:
        first = parts[0]
        pos, counts = all_positives(parts)
        self.mean_positive.update(pos, counts, first.state_group, on_host=first.on_host)
        return super().part_losses(parts)

    def diagnose(self, losses, counted, parts) -> dict[str, Tensor]:
        return {'mean_positive': self.mean_positive.mean.mean()}
