"""Rank & Sort as a registered loss."""

from torch import Tensor

from mmrank.functional.ranking.error_driven.rank_sort import error_driven_rank_sort
from mmrank.losses.ranking.ranking_loss import RankedLists

from .error_driven_loss import ErrorDrivenLoss


class RankSortLoss(ErrorDrivenLoss):
    """Rank & Sort: positives above negatives, sorted by the IoU of their box.

    Needs ``mmrank.ListwiseHead`` or ``mmrank.ListwiseBBoxHead``, which pass the IoUs, and decoded
    boxes; their ``balance_boxes=True`` is the
    paper's weighting of the box loss. Source: Oksuz et al., Rank & Sort Loss for Object Detection
    and Instance Segmentation, ICCV 2021.

    Args:
        delta: Half width of the step in units of the logits, > 0.
        sort_weight: Weight of the sorting part beside the ranking part, >= 0.
        momentum: Weight of the new batch in the mean positive logit, which centres the scores shown
            at test time.
        **kwargs: ``num_classes``, ``mode``, ``reduction``, ``scope``, ``loss_weight`` and
            ``use_sigmoid`` of
            :class:`mmrank.losses.RankingLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    box_input = 'quality'

    def __init__(
        self, delta: float = 0.5, sort_weight: float = 1.0, momentum: float = 0.01, **kwargs
    ) -> None:
        super().__init__(delta, momentum, **kwargs)
        if sort_weight < 0:
            raise ValueError(f'sort_weight must be >= 0, got {sort_weight!r}')
        self.sort_weight = sort_weight

    def evaluate(self, lists: RankedLists) -> Tensor:
        """Ranking plus weighted sorting error of the lists, reduced."""
        parts = error_driven_rank_sort(
            lists.pos,
            lists.scores,
            lists.values,
            delta=self.delta,
            pos_mask=lists.pos_mask,
            neg_mask=lists.neg_mask,
            group=lists.group,
        )
        has_positive = lists.pos_mask.any(1)
        ranking, sorting = (self.reduce_lists(p, has_positive) for p in parts)
        self.note(ranking=ranking, sorting=sorting)
        return ranking + self.sort_weight * sorting
