"""The base of the ranking losses: from the lists of a batch to their positives and negatives."""

import math
from collections.abc import Sequence
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import can_sync
from mmrank.checks import one_of
from mmrank.distributed import scale_gradient, world_group
from mmrank.errors import UserError
from mmrank.losses import groups, inputs
from mmrank.losses.interface import HeadLoss
from mmrank.losses.lists import MOST_PAIRS, RankedLists, positive_index, values_at
from mmrank.losses.options import HeadOptions, Unpack

#: How much the IoU of a box counts where ``quality`` is None and a head passes it.
GRADED = 0.9


class RankingLoss(HeadLoss):
    """Base of losses that rank all scores of a batch against each other.

    Heads that call a loss once per feature level must gather first (see
    :func:`mmrank.models.dense_heads.ListwiseHead`). Subclasses implement :meth:`list_losses`, or
    :meth:`part_losses`.

    The value says little, and a batch without positives counts 0: watch ``risk`` in
    :attr:`diagnostics` and AP; choose checkpoints by the AP of the validation split.

    Args:
        num_classes: Number of classes C, checked against the scores.
        mode: ``flatten``: all classes in one ranking, every score counts once per class.
            ``per_class``: one ranking per class.
        activation: ``none`` ranks raw logits, ``sigmoid`` scores in (0, 1).
        reduction: How the rankings of ``per_class`` are put together: ``mean`` over the classes
            that have a positive, or ``sum``.
        **kwargs: ``scope``, ``loss_weight`` and ``use_sigmoid`` of
            :class:`mmrank.losses.HeadLoss`.

    Attributes:
        diagnostics: Detached scalars of the last forward by name, for ``RankingMonitorHook``.
            ``argument`` is what ``x/(1 + x)`` or the like is applied to: far above 1 its gradient
            vanishes, and the hook gives the ``saturation_advice``. ``idle`` is the share of the
            lists with positives that have no gradient, as no pair is within the margin.
            ``num_positive`` is there for every loss.
    """

    #: Whether a list without a positive has neither a loss nor a gradient. Its scores are then 0: a
    #: NaN among them would reach the gradient, but not the loss.
    zero_without_positives = False
    #: How much the IoU of a positive's box counts, in [0, 1], see :meth:`count_quality`.
    quality: float | None = 0.0
    #: What a step takes time for: ``pairs`` of a positive and a score, or ``scores``.
    cost = 'pairs'
    #: Logged once before training by ``RankingMonitorHook``.
    reading_advice = (
        'The value of a ranking loss says little: watch AP, and risk where it is logged; choose '
        'checkpoints by the AP of the validation split.'
    )

    def __init__(
        self,
        num_classes: int | None = None,
        mode: str = 'flatten',
        activation: str = 'none',
        reduction: str = 'mean',
        **kwargs: Unpack[HeadOptions],
    ) -> None:
        super().__init__(num_classes, **kwargs)
        one_of('mode', mode, ('flatten', 'per_class'))
        one_of('reduction', reduction, ('mean', 'sum'))
        one_of('activation', activation, ('none', 'sigmoid'))
        self.mode = mode
        self.activation = activation
        self.reduction = reduction

    def loss_of_lists(self, *lists, **options) -> Tensor | dict[str, Tensor]:
        return self._loss([self.ranked_lists(*lists, **options)])

    def loss_of_groups(
        self, lists: tuple[Tensor, Tensor, Tensor], group: Tensor, row_values: Tensor | None
    ) -> Tensor | dict[str, Tensor]:
        return self._loss(groups.group_lists(self.ranked_lists, lists, group, row_values))

    def _loss(self, parts: Sequence[RankedLists]) -> Tensor | dict[str, Tensor]:
        """Loss of all lists, at least float32."""
        losses = self.list_losses(parts[0]) if len(parts) == 1 else self.part_losses(parts)
        number = torch.stack([lists.pos_mask.sum() for lists in parts]).sum()
        self.diagnostics['num_positive'] = number
        dtype = torch.promote_types(parts[0].pos.dtype, torch.float32)
        if isinstance(losses, dict):
            return {name: loss.to(dtype) for name, loss in losses.items()}
        return losses.to(dtype)

    def embedding_loss(self, batch: inputs.EmbeddingBatch) -> Tensor:
        """Loss of a retrieval batch, a ranking per query; ``mode`` decides on a state per class."""
        self._check_retrieval()
        lists = (batch.scores(), batch.is_positive(), batch.is_negative())
        losses = self.loss_of_lists(*lists, list_classes=batch.query_labels)
        return self.loss_weight * cast(Tensor, losses)  # a dict is of boxes

    def count_quality(self, quality: float | None) -> None:
        """Make heads pass the IoUs unless ``quality`` is 0.

        With None the loss counts the IoUs by :data:`GRADED` where a head passes them, and serves
        every other batch as 0 does. ValueError outside [0, 1].
        """
        if quality is not None and not 0 <= quality <= 1:
            raise UserError(
                f'quality must be in [0, 1], got {quality!r}. Fix: 0 for positives that are all '
                f'alike, {GRADED} to let the IoU of their boxes count'
            )
        self.quality = quality
        if quality != 0:
            self.box_input = 'quality'
        self.requires_boxes = quality is not None

    def relevance(self, lists: RankedLists) -> Tensor | None:
        """(L, P) float64 ``u = 1 - q + q IoU`` of the positives, no gradient; None for q = 0."""
        quality = self.quality
        if quality is None:
            quality = 0.0 if lists.values is None else GRADED
        if quality == 0:
            return None
        return 1 - quality + quality * lists.required_values().detach().double()

    def ranked_lists(
        self,
        scores: Tensor,
        is_positive: Tensor,
        is_negative: Tensor,
        values: Tensor | None = None,
        list_classes: Tensor | None = None,
    ) -> RankedLists:
        """Activate (L, N) raw scores and gather the positives of all ranks.

        See :meth:`loss_of_lists` for the arguments.
        """
        world = world_group() if dist.is_available() and dist.is_initialized() else None
        group = world if self.scope == 'global' else None
        if group is not None:
            scores = scale_gradient(scores, dist.get_world_size(group))
        if self.activation == 'sigmoid':
            scores = inputs.probabilities(scores)
        # Values of boxes are compared in pairs of positives.
        most_pairs = math.inf if self.cost == 'scores' and values is None else MOST_PAIRS
        if group is not None:
            # To join the positives of all ranks, the host waits for their number in any case.
            most_pairs = 0
        index, pos_mask = positive_index(is_positive, most_pairs)
        pos = scores.gather(1, index)
        if values is not None:
            values = torch.where(pos_mask, values_at(values, index, scores.size(1)), 0)
        if group is not None:
            pos, values, pos_mask = inputs.gather_positives(pos, values, pos_mask, group)
            # Another rank may have wider scores.
            scores = scores.to(torch.promote_types(pos.dtype, scores.dtype))
        if self.zero_without_positives:
            counted = pos_mask.any(1, keepdim=True)
            # On a device the host would wait for the answer.
            if not (can_sync(counted) and counted.all()):
                scores = torch.where(counted, scores, 0)
            pos = torch.where(pos_mask, pos, 0)
        others = world if group is None else None
        return RankedLists(
            pos, pos_mask, scores, is_positive, is_negative, values, group, others, list_classes
        )

    def list_losses(self, lists: RankedLists) -> Tensor | dict[str, Tensor]:
        """Scalar loss >= 0 of the lists, or a dict of such, without ``loss_weight``."""
        if type(self).part_losses is RankingLoss.part_losses:
            raise NotImplementedError
        return self.part_losses([lists])

    def part_losses(self, parts: Sequence[RankedLists]) -> Tensor | dict[str, Tensor]:
        """:meth:`list_losses` of lists of unlike lengths, in parts of like lengths.

        The default joins them in one padded matrix, which serves every loss. One that knows the
        loss of each list overrides it and needs no such matrix.
        """
        return self.list_losses(groups.padded(parts))

    def reduce_lists(self, losses: Tensor, counted: Tensor) -> Tensor:
        """Sum of (L,) losses, or their mean over the (L,) bool lists that count."""
        total = losses.sum()
        return total / counted.sum().clamp(min=1) if self.reduction == 'mean' else total


def lists_with_positives(parts: Sequence[RankedLists]) -> Tensor:
    """(L,) bool, the lists of all parts that have a positive."""
    return torch.cat([lists.has_positive for lists in parts])


def all_positives(parts: Sequence[RankedLists]) -> tuple[Tensor, Tensor]:
    """(1, n) positives of all lists, padding included, and their mask; of one part (L, P) as is."""
    if len(parts) == 1:
        return parts[0].pos, parts[0].pos_mask
    pos = torch.cat([lists.pos.flatten().double() for lists in parts])
    mask = torch.cat([lists.pos_mask.flatten() for lists in parts])
    return pos.unsqueeze(0), mask.unsqueeze(0)


@torch.no_grad()
def idle_share(risks: Tensor, has_positive: Tensor) -> Tensor:
    """Share of the (L,) lists with positives whose risk is 0: no pair of theirs has a gradient."""
    return (has_positive & (risks == 0)).sum() / has_positive.sum().clamp(min=1)
