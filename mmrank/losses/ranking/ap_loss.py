"""AP-Loss, plain and graded by the relevance of the positives."""

import torch
from torch import Tensor

from mmrank.losses.lists import RankedLists
from mmrank.losses.pairs_graded import GRADED, CountsQuality, relevances
from mmrank.losses.plain_lists import like_scores
from mmrank.settings import check_positive

from .error_driven import ErrorDrivenLoss, RankCounts, target_lists


def ap_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    mask: Tensor | None = None,
    delta: float = 1.0,
    interpolate: bool = True,
    relevance: Tensor | None = None,
) -> Tensor:
    """AP-Loss of each list.

    ``mean_i N_FP(i) / rank(i)`` with ``rank(i) = 1 + sum_{k != i} H(s_k - s_i) + N_FP(i)``. Source:
    Chen et al., Towards Accurate One-Stage Object Detection with AP-Loss, CVPR 2019, eqs. 4 to 6
    and section 3.4.3.

    See :func:`split_lists` for the lists and the result. The gradient is the paper's update, not
    the derivative of the value.

    Args:
        logits: (N,) or (L, N) scores.
        targets: Same shape; in (0, 1] positive, 0 negative.
        mask: Same shape, False or 0 at entries to ignore, whatever their target. None: all count.
        delta: Half width of the step H in units of the scores, > 0.
        interpolate: Use the interpolated precision: ``1 - N_FP/rank`` of a positive is the largest
            of all positives that do not score higher.
        relevance: Relevance u of the shape of the logits, read at the positives, where it is > 0;
            no gradient, only ratios count. A positive then also is a false positive of positives of
            more relevance, ``F_i = u_i N_FP(i) + sum_k (u_i - u_k)_+ H(s_k - s_i)``. The loss ``1 /
            (sum_i u_i) sum_i F_i / rank(i)`` is 1 - GAP over its largest value, of
            :func:`mmrank.functional.graded_average_precision`, with the step H. Interpolated are
            ``F_i / (u_i rank(i))``. None: all are alike.

    Example:
        >>> ap_loss(torch.tensor([2.0, 0.0, -3.0]), torch.tensor([0, 1, 0]))
        tensor(0.5000)
    """
    check_positive(delta=delta)
    lists = target_lists(logits, targets, mask, relevance)
    return like_scores(_ap(lists, delta, interpolate, relevances(lists)), logits)


def _ap(
    lists: RankedLists, delta: float, interpolate: bool, relevance: Tensor | None = None
) -> Tensor:
    counts = RankCounts(lists, delta)
    rank = 1 + counts.positives + counts.false_positives
    # How much each positive counts.
    share = lists.pos_mask.double()
    if relevance is not None:
        share = torch.where(lists.pos_mask, relevance.detach().double(), 0)
        counts.grade(share)
    # NaN, of a broken box, counts: it shows in the loss.
    counted = ~(share <= 0)
    error = counts.false_positives / rank / torch.where(counted, share, 1)
    if interpolate and error.size(1):
        # The least error of all positives that score no higher; equal scores share it.
        pos = lists.pos.detach().double()
        scores, order = torch.where(counted, pos, torch.inf).sort(1)
        # Padding is not a positive, so it must not lower the error of an infinite score.
        least = torch.where(counted, error, torch.inf).gather(1, order).cummin(1).values
        last_tie = torch.searchsorted(scores, scores, right=True) - 1
        error = torch.empty_like(error).scatter_(1, order, least.gather(1, last_tie))
    return counts.loss(torch.where(counted, error * share, 0))


class APLoss(CountsQuality, ErrorDrivenLoss):
    """:func:`mmrank.functional.ap_loss` of a batch.

    Args:
        interpolate: Use the interpolated precision, as the paper does.
        quality: How much the IoU of a positive's box counts, q in [0, 1]: its relevance is ``1 - q
            + q IoU``. None: 0.9 where a head passes the IoUs, 0 elsewhere. 0 is the paper's.
    """

    cost = 'scores'

    def __init__(
        self, delta: float = 1.0, interpolate: bool = True, quality: float | None = None, **kwargs
    ) -> None:
        super().__init__(delta, **kwargs)
        if quality is not None:
            self.count_quality(quality)
        self.interpolate = interpolate

    def losses(self, lists: RankedLists) -> Tensor:
        relevance = None if lists.values is None else self.relevance(lists)
        return _ap(lists, self.delta, self.interpolate, relevance)


class GradedAPLoss(APLoss):
    """AP-Loss by the metric of COCO: graded average precision of scores and boxes at once.

    A positive counts by the IoU of its box, ``u = 0.1 + 0.9 IoU``, and is a false positive of the
    positives with better boxes. It is :class:`APLoss` with ``quality=0.9``, ``delta=0.5`` and
    without interpolation. Heads pass the IoUs, so the loss needs the boxes of a detector. Source:
    graded average precision of Robertson et al., SIGIR 2010; the update rule of Chen et al.,
    AP-Loss, CVPR 2019.

    Args:
        loss_weight: Weight of the class part. 0.6 was level with 1 or better on the five sets on
            which it was chosen, for one-stage heads; less raises AP75 and costs AP50 where classes
            are easily confused.

    Example:
        >>> loss = GradedAPLoss(loss_weight=1.0)
        >>> scores, classes = torch.tensor([[2.0], [1.0], [0.0]]), torch.tensor([0, 0, 1])
        >>> loss(scores, classes, quality=torch.tensor([0.5, 0.9]), avg_factor=3)
        tensor(0.1233)
    """

    fixed_settings = ('delta', 'interpolate', 'quality')

    def __init__(self, loss_weight: float = 0.6, **kwargs) -> None:
        super().__init__(
            delta=0.5, interpolate=False, quality=GRADED, loss_weight=loss_weight, **kwargs
        )
