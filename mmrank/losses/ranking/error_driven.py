"""The update rule of AP-Loss, Rank & Sort and aLRP, and the base of these losses.

They count how many scores lie above a positive with the step ``H(x) = clamp(x / (2 delta) + 1/2, 0,
1)``: :func:`mmrank.losses.pairs.count_above`, in near-linear time. H has no useful derivative, so
each loss says what the error of a positive is, and :meth:`RankCounts.loss` makes it a gradient.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mmrank.autograd import Function, once_differentiable
from mmrank.checks import check_positive
from mmrank.losses.base import RankingLoss
from mmrank.losses.lists import RankedLists, all_positives, split_lists
from mmrank.losses.pairs import count_above, spread_above
from mmrank.losses.pairs_graded import graded_pairs
from mmrank.state import MeanPositiveScore
from mmrank.tensors import check_tensors, shares

#: What the mean positive logit of a batch is compared with. No setting: the loss itself has no
#: range.
USUAL_LOGITS = (-5.0, 5.0)


def target_lists(logits: Tensor, targets: Tensor, values: Tensor | None = None) -> RankedLists:
    """Lists by targets in (0, 1] for positives, 0 for negatives, < 0 (or NaN) for what is left out.

    ValueError above 1.
    """
    check_tensors(logits=logits, targets=targets)
    if logits.shape != targets.shape:
        raise ValueError(
            'logits and targets must have one shape, got '
            f'{tuple(logits.shape)} and {tuple(targets.shape)}'
        )
    is_positive = targets > 0
    # The scores themselves, arguments swapped, would pass for labels.
    fix = '0 for negatives, at most 1 for positives, -1 for what is left out'
    shares('targets', torch.where(is_positive, targets, 0), fix)
    return split_lists(logits, is_positive, targets >= 0, values)


def _piecewise_linear_step(x: Tensor, delta: float) -> Tensor:
    """``H(x) = clamp(x / (2 delta) + 1/2, 0, 1)`` of score differences of any shape.

    ``delta`` is the half width of the ramp. Source: AP-Loss (CVPR 2019), eq. 13; Rank & Sort (ICCV
    2021), section 3.
    """
    return (x / (2 * delta) + 0.5).clamp(0, 1)


def positive_pairs(
    lists: RankedLists, grade: Tensor, delta: float
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield rows i, (L, rows, P) ``(u_i - u_k)_+`` and ``H(s_k - s_i)``, in blocks.

    u is the (L, P) ``grade`` of the positives. At padding k the first is 0, the second any number.
    """
    for part, gaps, x in graded_pairs(lists.pos, lists.pos_mask, grade):
        yield part, gaps, _piecewise_linear_step(-x, delta)


class RankCounts:
    """How many scores lie above each positive of L lists, by the step H.

    Attributes:
        false_positives: (L, P) float64 ``N_FP(i) = sum_j H(t_j - s_i)``.
        positives: (L, P) float64 ``sum_{k != i} H(s_k - s_i)``.
        total: (L,) float64 number of positives, at least 1.
    """

    def __init__(self, lists: RankedLists, delta: float) -> None:
        self.lists = lists
        self.delta = delta
        self.relevance: Tensor | None = None
        mask = lists.pos_mask
        pos = lists.pos.double()
        with torch.no_grad():
            self.false_positives, *self._above = count_above(
                lists.pos, mask, lists.scores, lists.is_negative, delta, lists.group
            )
            among, *self._among = count_above(pos, mask, pos, mask, delta)
        # A positive meets itself at H(0) = 1/2.
        self.positives = torch.where(mask, (among - 0.5).clamp(min=0), 0)
        self.total = mask.sum(1).clamp(min=1).double()

    def grade(self, relevance: Tensor) -> None:
        """Make a positive a false positive of positives of more relevance u, (L, P) float64.

        N_FP(i) becomes ``u_i N_FP(i) + sum_k (u_i - u_k)_+ H(s_k - s_i)``, the total ``sum_i u_i``.
        """
        rows = torch.zeros_like(relevance)
        with torch.no_grad():
            for part, gaps, above in positive_pairs(self.lists, relevance, self.delta):
                rows[:, part] = (gaps * above).sum(2)
        self.false_positives = relevance * self.false_positives + rows
        total = relevance.sum(1)
        self.total = torch.where(total > 0, total, 1)
        self.relevance = relevance

    def spread_over_positives(self, weight: Tensor) -> Tensor:
        """(L, P) ``sum_i w_i H(s_k - s_i)`` of (L, P) weights, k = i included."""
        way, saved = self._among
        return spread_above(weight, self.lists.pos.double(), self.delta, way, *saved)

    def loss(self, error: Tensor, value: Tensor | None = None, least: float = 0.0) -> Tensor:
        """(L,) mean of (L, P) errors, whose gradient is their identity update.

        Positive i receives ``-error_i / total`` and negative j ``sum_i error_i H(t_j - s_i) /
        (N_FP(i) total)``: what the positives are pulled up by is what the negatives above them are
        pushed down by; graded, also the positives of less relevance. Source: Rank & Sort (ICCV
        2021), eqs. 3 to 6; AP-Loss (CVPR 2019), eqs. 9 to 12.

        Args:
            error: (L, P) float64 without gradient, 0 at padding.
            value: The same, if the loss is the mean of other numbers than the errors.
            least: Up to so many false positives there is no update. Where errors do not vanish with
                their number, rounding would be divided by rounding.
        """
        lists = self.lists
        value = (error if value is None else value).sum(1) / self.total
        has_error = self.false_positives > least
        error = torch.where(has_error, error, 0) / self.total.unsqueeze(1)
        spread = torch.where(has_error, error / self.false_positives, 0)
        grad = -error
        if self.relevance is not None:
            with torch.no_grad():
                for part, gaps, above in positive_pairs(lists, self.relevance, self.delta):
                    grad += torch.bmm(spread[:, part].unsqueeze(1), above.mul_(gaps)).squeeze(1)
            spread = self.relevance * spread
        way, saved = self._above
        return _ErrorDriven.apply(
            lists.pos, lists.scores, value, grad, spread, self.delta, way, *saved
        )


class _ErrorDriven(Function):
    @staticmethod
    def forward(ctx, pos, neg, value, pos_grad, spread, delta, way, *saved):
        ctx.delta = delta
        ctx.way = way
        ctx.save_for_backward(pos, neg, pos_grad, spread, *saved)
        return value.clone()

    @staticmethod
    @once_differentiable('An error-driven loss (AP-Loss, aLRP, Rank & Sort)')
    def backward(ctx, grad):
        pos, neg, pos_grad, spread, *saved = ctx.saved_tensors
        grad = grad.unsqueeze(1)
        grad_pos = grad_neg = None
        if ctx.needs_input_grad[0]:
            grad_pos = (grad * pos_grad).to(pos.dtype)
        if ctx.needs_input_grad[1]:
            grad_neg = spread_above(grad * spread, neg, ctx.delta, ctx.way, *saved)
        return (grad_pos, grad_neg, *[None] * (5 + len(saved)))


class _GivenGradient(Function):
    @staticmethod
    def forward(ctx, value, *scores_and_grads):
        ctx.save_for_backward(*scores_and_grads)
        return value.clone()

    @staticmethod
    @once_differentiable('A ranking loss whose gradient is a rule')
    def backward(ctx, grad):
        saved = ctx.saved_tensors
        number = len(saved) // 2
        found = []
        for scores, own in zip(saved[:number], saved[number:]):
            # Not in float64 where the gradient is not: that takes twice as much.
            found.append((grad.to(own.dtype).unsqueeze(1) * own).to(scores.dtype))
        return (None, *found, *[None] * number)


def given_gradient(value: Tensor, *scores_and_grads: tuple[Tensor, Tensor]) -> Tensor:
    """(L,) ``value``, whose gradient by each of the (L, N) scores is the tensor beside it."""
    scores, grads = zip(*scores_and_grads)
    return _GivenGradient.apply(value, *scores, *grads)


class ErrorDrivenLoss(RankingLoss):
    """Base of AP-Loss, aLRP and Rank & Sort: a subclass defines :meth:`evaluate`.

    The mean positive logit is tracked for :meth:`logit_centre` alone, which centres the scores
    shown at test time; it does not affect the loss.

    Args:
        delta: Half width of the step in units of the raw logits, > 0.
        **kwargs: ``num_classes``, ``mode``, ``reduction``, ``scope`` and ``loss_weight`` of
            :class:`mmrank.losses.RankingLoss`.
    """

    zero_without_positives = True
    fixed_settings = ('activation',)
    #: Weight of the new batch in the mean positive logit.
    momentum = 0.01

    def __init__(self, delta: float, **kwargs) -> None:
        super().__init__(activation='none', **kwargs)
        check_positive(delta=delta)
        self.delta = delta
        self.mean_positive = MeanPositiveScore(1, self.momentum, score_range=USUAL_LOGITS)

    def part_losses(self, parts: Sequence[RankedLists]) -> Tensor | dict[str, Tensor]:
        group = parts[0].state_group
        self.mean_positive.update(*all_positives(parts), group)
        self.diagnostics = {'mean_positive': self.mean_positive.mean.mean()}
        terms = zip(*[self.evaluate(lists) for lists in parts])
        counted = torch.cat([lists.has_positive for lists in parts])
        reduced = [self.reduce_lists(torch.cat(term), counted) for term in terms]
        return self.combine(*reduced, group=group)

    def evaluate(self, lists: RankedLists) -> tuple[Tensor, ...]:
        """(L,) float64 terms of the loss of each list."""
        raise NotImplementedError

    def combine(self, *terms: Tensor, group) -> Tensor | dict[str, Tensor]:
        """Loss of the reduced terms; ``group`` holds the ranks with other positives, or None."""
        return terms[0]
