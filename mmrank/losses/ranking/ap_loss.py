"""AP-Loss, and what AP-Loss, aLRP and Rank & Sort share: gradients set by an update rule.

They count how many scores lie above a positive with the step ``H(x) = clamp(x / (2 delta) + 1/2, 0,
1)``. H is, up to a factor and a shift, the slope of the one-sided Huber surrogate::

    H(t - s) = -delta * l'(s + delta - t),    tau = 2 delta

so the exact near-linear evaluation of that surrogate serves them as well.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import Function, once_differentiable
from mmrank.checks import check_positive
from mmrank.losses.base import GRADED, RankingLoss
from mmrank.losses.lists import RankedLists, all_positives, like_scores, split_lists
from mmrank.losses.options import LogitOptions, Unpack
from mmrank.losses.pairs.buffers import Buffers
from mmrank.losses.pairs.graded_sums import graded_pairs
from mmrank.losses.pairs.pair_sums import pair_evaluator
from mmrank.losses.pairs.surrogates import OneSidedHuber
from mmrank.state import MeanPositiveScore
from mmrank.tensors import check_tensors, shares

#: What the mean positive logit of a batch is compared with. No setting: the loss itself has no
#: range.
USUAL_LOGITS = (-5.0, 5.0)


def ap_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    delta: float = 1.0,
    interpolate: bool = True,
    relevance: Tensor | None = None,
) -> Tensor:
    """AP-Loss of each list.

    ``mean_i N_FP(i) / rank(i)`` with ``rank(i) = 1 + sum_{k != i} H(s_k - s_i) + N_FP(i)``. Source:
    Chen et al., Towards Accurate One-Stage Object Detection with AP-Loss, CVPR 2019, eqs. 4 to 6
    and section 3.4.3.

    Args:
        logits: (N,) scores of one list, or (L, N) of L lists, any float dtype.
        targets: Same shape; in (0, 1] positive, 0 negative, < 0 left out.
        delta: Half width of the step H in units of the scores, > 0.
        interpolate: Use the interpolated precision: ``1 - N_FP/rank`` of a positive is the largest
            of all positives that do not score higher.
        relevance: Relevance u of the shape of the logits, read at the positives, where it is > 0;
            no gradient, only ratios count. A positive then also is a false positive of positives of
            more relevance, ``F_i = u_i N_FP(i) + sum_k (u_i - u_k)_+ H(s_k - s_i)``. The loss ``1 /
            (sum_i u_i) sum_i F_i / rank(i)`` is 1 - GAP over its largest value, of
            :func:`mmrank.functional.graded_average_precision`, with the step H. Interpolated are
            ``F_i / (u_i rank(i))``. None: all are alike.

    Returns:
        Scalar, or (L,) losses, in [0, 1], at least float32; 0, still attached to the graph, for a
        list without positives. The gradient is the paper's update, not the derivative of the value.

    Example:
        >>> ap_loss(torch.tensor([2.0, 0.0, -3.0]), torch.tensor([0, 1, 0]))
        tensor(0.5000)
    """
    check_positive(delta=delta)
    lists = target_lists(logits, targets, relevance)
    return like_scores(_ap(lists, delta, interpolate, lists.values), logits)


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


def _ap(
    lists: RankedLists, delta: float, interpolate: bool, relevance: Tensor | None = None
) -> Tensor:
    counts = rank_counts(lists, delta)
    pos = lists.pos
    mask = lists.pos_mask
    with torch.no_grad():
        rank = 1 + counts.positives + counts.false_positives
        if relevance is not None:
            relevance = torch.where(mask, relevance.detach().double(), 0)
            mask = mask & (relevance != 0)
            counts = _graded_counts(lists, counts, relevance, delta)
        error = counts.false_positives / rank
        if relevance is not None:
            error = error / torch.where(mask, relevance, 1)
        if interpolate and pos.size(1):
            error = _interpolated(error, pos, mask)
        if relevance is not None:
            error = error * relevance
        error = torch.where(mask, error, 0)
        value = error.sum(1) / counts.num_pos
    return error_driven_loss(lists, value, error, counts, relevance=relevance)


def _interpolated(error: Tensor, pos: Tensor, mask: Tensor) -> Tensor:
    """(L, P) least error of all positives that score no higher; equal scores share it."""
    scores, order = torch.where(mask, pos.double(), torch.inf).sort(1)
    # Padding is not a positive, so it must not lower the error of an infinite score.
    least = torch.where(mask, error, torch.inf).gather(1, order).cummin(1).values
    last_tie = torch.searchsorted(scores, scores, right=True) - 1
    return torch.empty_like(error).scatter_(1, order, least.gather(1, last_tie))


def _graded_counts(
    lists: RankedLists, counts: 'RankCounts', relevance: Tensor, delta: float
) -> 'RankCounts':
    """Counts in which a positive is a false positive of more relevant ones, see `ap_loss`."""
    rows = torch.zeros_like(relevance)
    for part, gaps, x in graded_pairs(lists.pos, lists.pos_mask, relevance, Buffers()):
        rows[:, part] = (gaps * piecewise_linear_step(-x, delta)).sum(2)
    total = relevance.sum(1)
    return counts._replace(
        false_positives=relevance * counts.false_positives + rows,
        num_pos=torch.where(total > 0, total, 1),
    )


def piecewise_linear_step(x: Tensor, delta: float) -> Tensor:
    """``H(x) = clamp(x / (2 delta) + 1/2, 0, 1)`` of score differences of any shape.

    ``delta`` is the half width of the ramp. Source: AP-Loss (CVPR 2019), eq. 13; Rank & Sort (ICCV
    2021), section 3.
    """
    return (x / (2 * delta) + 0.5).clamp(0, 1)


class StepSums:
    """Sums of H over pairs, and the transposed sums."""

    def __init__(self, delta: float) -> None:
        self.delta = delta

    def count(
        self, pos: Tensor, pos_mask: Tensor, scores: Tensor, mask: Tensor | None, group=None
    ) -> tuple[Tensor, tuple]:
        """(L, P) float64 ``sum_j H(t_j - s_i)``, 0 at padding, and tensors for :meth:`spread`."""
        surrogate = OneSidedHuber(2 * self.delta)
        self._evaluator = pair_evaluator(surrogate, pos_mask, scores.size(1))
        shifted = pos.double() + self.delta
        _, slope, extra = self._evaluator.sums(shifted, pos_mask, scores, mask, values=False)
        count = -self.delta * slope
        if group is not None:
            dist.all_reduce(count, group=group)
        # Rounding may leave -1e-17 where the count is 0.
        return torch.where(pos_mask, count.clamp(min=0), 0), extra

    def spread(self, weight: Tensor, scores: Tensor, *extra) -> Tensor:
        """(L, N) ``sum_i w_i H(t_j - s_i)`` of (L, P) weights, 0 at padding, in the scores' dtype.

        For the scores of the last :meth:`count`, which returned ``extra``.
        """
        return self._evaluator.gradient_of_negatives(self.delta * weight, scores, *extra)


class RankCounts(NamedTuple):
    """How many scores lie above each positive, by the step H, in float64."""

    #: What counted the negatives, and the tensors it needs to spread an error.
    steps: StepSums
    extra: tuple
    #: The same for the positives among themselves.
    own_steps: StepSums
    own_extra: tuple
    false_positives: Tensor  # (L, P) ``N_FP(i) = sum_j H(t_j - s_i)``
    positives: Tensor  # (L, P) ``sum_{k != i} H(s_k - s_i)``
    num_pos: Tensor  # (L,) number of positives, at least 1


@torch.no_grad()
def rank_counts(lists: RankedLists, delta: float) -> RankCounts:
    """Count above each positive of L lists."""
    pos = lists.pos
    mask = lists.pos_mask
    steps = StepSums(delta)
    own = StepSums(delta)
    above, extra = steps.count(pos, mask, lists.scores, lists.is_negative, lists.group)
    same = pos.double()
    among, own_extra = own.count(same, mask, same, mask)
    # A positive meets itself at H(0) = 1/2.
    among = torch.where(mask, (among - 0.5).clamp(min=0), 0)
    num_pos = mask.sum(1).clamp(min=1).double()
    return RankCounts(steps, extra, own, own_extra, above, among, num_pos)


class _ErrorDriven(Function):
    @staticmethod
    def forward(ctx, pos, neg, value, pos_grad, spread, steps, *extra):
        ctx.steps = steps
        ctx.save_for_backward(pos, neg, pos_grad, spread, *extra)
        return value.clone()

    @staticmethod
    @once_differentiable('An error-driven loss (AP-Loss, aLRP, Rank & Sort)')
    def backward(ctx, grad):
        pos, neg, pos_grad, spread, *extra = ctx.saved_tensors
        grad = grad.unsqueeze(1)
        grad_pos = grad_neg = None
        if ctx.needs_input_grad[0]:
            grad_pos = (grad * pos_grad).to(pos.dtype)
        if ctx.needs_input_grad[1] and ctx.steps is not None:
            grad_neg = ctx.steps.spread(grad * spread, neg, *extra)
        return (grad_pos, grad_neg, *[None] * (4 + len(extra)))


def error_driven_loss(
    lists: RankedLists,
    value: Tensor,
    error: Tensor,
    counts: RankCounts,
    eps: float = 0.0,
    relevance: Tensor | None = None,
) -> Tensor:
    """(L,) ``value``, differentiable once: its gradient is the identity update of (L, P) errors.

    Positive i receives ``-error_i / n+`` and negative j ``sum_i error_i H(t_j - s_i) / (N_FP(i)
    n+)``: what the positives are pulled up by is what the negatives above them are pushed down by.
    A positive without false positives has no error to pass on. Source: Rank & Sort (ICCV 2021),
    eqs. 3 to 6; AP-Loss (CVPR 2019), eqs. 9 to 12. Up to ``eps`` false positives there is no
    update: where errors do not vanish with their number, rounding would be divided by rounding.
    With a ``relevance``, (L, P), the counts are graded, and positives push positives as well.
    """
    found = counts.false_positives > eps
    error = torch.where(found, error, 0) / counts.num_pos.unsqueeze(1)
    spread = torch.where(found, error / counts.false_positives, 0)
    grad = -error
    if relevance is not None:
        with torch.no_grad():
            for part, gaps, x in graded_pairs(lists.pos, lists.pos_mask, relevance, Buffers()):
                above = piecewise_linear_step(-x, counts.steps.delta).mul_(gaps)
                grad += torch.bmm(spread[:, part].unsqueeze(1), above).squeeze(1)
        spread = relevance * spread
    return _ErrorDriven.apply(
        lists.pos, lists.scores, value, grad, spread, counts.steps, *counts.extra
    )


def fixed_gradient_loss(pos: Tensor, value: Tensor, grad: Tensor) -> Tensor:
    """(L,) ``value``, whose gradient by the (L, P) positives is ``grad``."""
    return _ErrorDriven.apply(pos, pos.detach(), value, grad, grad, None)


class ErrorDrivenLoss(RankingLoss):
    """Base of AP-Loss, aLRP and Rank & Sort.

    The mean positive logit is tracked for :meth:`logit_centre` alone, which centres the scores
    shown at test time; it does not affect the loss.

    Args:
        delta: Half width of the step in units of the raw logits, > 0.
        **kwargs: ``num_classes``, ``mode``, ``reduction``, ``scope`` and ``loss_weight`` of
            :class:`mmrank.losses.RankingLoss`.
    """

    zero_without_positives = True
    #: Weight of the new batch in the mean positive logit.
    momentum = 0.01

    def __init__(self, delta: float, **kwargs: Unpack[LogitOptions]) -> None:
        super().__init__(activation='none', **kwargs)
        check_positive(delta=delta)
        self.delta = delta
        self.mean_positive = MeanPositiveScore(1, self.momentum, score_range=USUAL_LOGITS)

    def part_losses(self, parts: Sequence[RankedLists]) -> Tensor | dict[str, Tensor]:
        first = parts[0]
        self.mean_positive.update(*all_positives(parts), first.state_group)
        self.diagnostics = {'mean_positive': self.mean_positive.mean.mean()}
        evaluated = [self.evaluate(lists) for lists in parts]
        terms = [torch.cat(values) for values in zip(*evaluated)]
        counted = torch.cat([lists.has_positive for lists in parts])
        reduced = [self.reduce_lists(term, counted) for term in terms]
        return self.combine(*reduced, first)

    def evaluate(self, lists: RankedLists) -> tuple[Tensor, ...]:
        """(L,) float64 terms of the loss of each list; what a subclass defines."""
        raise NotImplementedError

    def combine(self, *terms) -> Tensor | dict[str, Tensor]:
        """Loss from the reduced terms of :meth:`evaluate`; last come lists with the groups."""
        return terms[0]

    def note(self, **scalars: Tensor) -> None:
        """Add detached scalars to the diagnostics."""
        for name, value in scalars.items():
            self.diagnostics[name] = value.detach()

    def logit_centre(self) -> Tensor:
        """Mean positive logit, (1,)."""
        return self.mean_positive.mean

    @torch.no_grad()
    def shift_logits(self, offset: Tensor) -> None:
        mean = self.mean_positive.mean
        mean.copy_(self._shifted(mean, offset))


class APLoss(ErrorDrivenLoss):
    """:func:`mmrank.functional.ap_loss` of a batch.

    Args:
        delta: Half width of the step in units of the logits, > 0.
        interpolate: Use the interpolated precision, as the paper does.
        quality: How much the IoU of a positive's box counts, q in [0, 1]: its relevance is ``1 - q
            + q IoU``. None: 0.9 where a head passes the IoUs, 0 elsewhere. 0 is the paper's.
        **kwargs: See :class:`mmrank.losses.RankingLoss`, except ``activation``.
    """

    cost = 'scores'

    def __init__(
        self,
        delta: float = 1.0,
        interpolate: bool = True,
        quality: float | None = None,
        **kwargs: Unpack[LogitOptions],
    ) -> None:
        super().__init__(delta, **kwargs)
        self.count_quality(quality)
        self.interpolate = interpolate

    def evaluate(self, lists: RankedLists) -> tuple[Tensor, ...]:
        return (_ap(lists, self.delta, self.interpolate, self.relevance(lists)),)


class GradedAPLoss(APLoss):
    """AP-Loss by the metric of COCO: graded average precision of scores and boxes at once.

    A positive counts by the IoU of its box, ``u = 0.1 + 0.9 IoU``, and is a false positive of the
    positives with better boxes. It is :class:`APLoss` with ``quality=0.9``, ``delta=0.5`` and
    without interpolation. Heads pass the IoUs, so the loss needs the boxes of a detector. Its
    value is one batch's value: watch AP; choose checkpoints by the AP of the validation split.
    Source: graded average precision of Robertson et al., SIGIR 2010; the update rule of Chen et
    al., AP-Loss, CVPR 2019.

    Args:
        **kwargs: See :class:`mmrank.losses.RankingLoss`, except ``activation``.

    Example:
        >>> loss = GradedAPLoss()
        >>> scores, classes = torch.tensor([[2.0], [1.0], [0.0]]), torch.tensor([0, 0, 1])
        >>> loss(scores, classes, quality=torch.tensor([0.5, 0.9]), avg_factor=2)
        tensor(0.1233)
    """

    def __init__(self, **kwargs: Unpack[LogitOptions]) -> None:
        super().__init__(delta=0.5, interpolate=False, quality=GRADED, **kwargs)
