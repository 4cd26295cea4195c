"""Bases of the ranking losses: from the scores of a batch to lists of positives and negatives."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.autograd import on_host
from mmrank.distributed import scale_gradient, world_group
from mmrank.errors import UserError
from mmrank.functional.metrics.labels import zeros_and_ones
from mmrank.losses import groups, inputs
from mmrank.losses.heads import HeadInterface
from mmrank.losses.lists import (
    MOST_PAIRS,
    RankedLists,
    check_classified,
    columns_of,
    one_vs_all,
    positive_index,
)
from mmrank.losses.setting_names import NamedSettings
from mmrank.state.base import check_count

#: How much the IoU of a box counts where ``quality`` is None and a head passes it.
GRADED = 0.9


class RankingLoss(NamedSettings, HeadInterface):
    """Base of losses that rank all scores of a batch against each other.

    Heads that call a loss once per feature level must gather first (see
    :func:`mmrank.models.dense_heads.ListwiseHead`). Subclasses implement :meth:`list_losses`.

    The value says little, and a batch without positives counts 0: watch ``risk`` in
    :attr:`diagnostics` and AP; choose checkpoints by the AP of the validation split.

    Args:
        num_classes: Number of classes C, checked against the scores.
        mode: ``flatten``: all classes in one ranking, every score counts once per class.
            ``per_class``: one ranking per class.
        activation: ``none`` ranks raw logits, ``sigmoid`` scores in (0, 1).
        scope: ``global``: in distributed training the scores of all ranks form one ranking, exactly
            as in a single process. ``local``: each rank ranks its own.
        loss_weight: Factor of the whole loss.
        use_sigmoid: Read by mmdet heads from the config: one output channel per class and sigmoid
            at test time, which keeps the ranking. Only True is supported.
        reduction: How the rankings of ``per_class`` are put together: ``mean`` over the classes
            that have a positive, or ``sum``.

    Attributes:
        diagnostics: Detached scalars of the last forward by name, for ``RankingMonitorHook``.
            ``argument`` is what ``x/(1 + x)`` or the like is applied to: far above 1 its gradient
            vanishes, and the hook gives the ``saturation_advice``. ``idle`` is the share of the
            lists with positives that have no gradient, as no pair is within the margin.

    Raises:
        ValueError, UserError: On an unknown choice or setting; by a dense head of mmdet that does
            not gather.
    """

    #: Whether a list without a positive has neither a loss nor a gradient. Its scores are then 0: a
    #: NaN among them would reach the gradient, but not the loss.
    zero_without_positives = False
    #: None, or what the loss takes of the positives' boxes: ``'quality'`` (IoU) or ``'loss'``.
    box_input: str | None = None
    #: Whether the loss refuses a batch without its ``box_input``.
    requires_boxes = True
    #: How much the IoU of a positive's box counts, in [0, 1], see :meth:`count_quality`.
    quality: float | None = 0.0
    #: See :func:`positive_index`; infinite where the work is not that of all pairs.
    most_pairs: float = MOST_PAIRS
    saturation_advice = ''
    #: Logged once before training by ``RankingMonitorHook``.
    reading_advice = (
        'The value of a ranking loss says little: watch AP, and risk where it is logged; choose '
        'checkpoints by the AP of the validation split.'
    )
    #: What the loss works on that a retrieval batch does not have; with a ``box_input`` the boxes.
    no_retrieval, for_retrieval = '', 'StableAPLoss'  # the second is what its message names

    def __init__(
        self,
        num_classes: int | None = None,
        mode: str = 'flatten',
        activation: str = 'none',
        scope: str = 'global',
        loss_weight: float = 1.0,
        use_sigmoid: bool = True,
        reduction: str = 'mean',
    ) -> None:
        super().__init__()
        inputs.one_of('mode', mode, ('flatten', 'per_class'))
        inputs.one_of('reduction', reduction, ('mean', 'sum'))
        inputs.one_of('scope', scope, ('global', 'local'))
        inputs.one_of('activation', activation, ('none', 'sigmoid'))
        inputs.check_not_negative(loss_weight=loss_weight)
        if num_classes is not None:
            check_count('num_classes', num_classes)
        if not use_sigmoid:
            raise UserError(
                'use_sigmoid=False is not supported: a ranking loss scores each class on its own. '
                'Fix: use_sigmoid=True, or leave it out'
            )
        # Not num_classes: mmdet's NumClassCheckHook takes what has that for a head of objects, and
        # an RPN has one class.
        self.num_columns = num_classes
        self.mode, self.reduction = mode, reduction
        self.activation, self.scope = activation, scope
        self.loss_weight, self.use_sigmoid = loss_weight, use_sigmoid
        self.diagnostics: dict[str, Tensor] = {}

    def forward(
        self,
        cls_score: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | None = None,
        reduction_override: str | None = None,
        *,
        quality: Tensor | None = None,
        box_loss: Tensor | None = None,
        group: Tensor | None = None,
    ) -> Tensor | dict[str, Tensor]:
        """Loss of all scores of a batch.

        Args:
            cls_score: (n,) raw scores of one list, or (n, C), any float dtype. A row of (n, C) is
                no list of its own: see ``group``. Embeddings go into
                :class:`mmrank.losses.EmbeddingLoss`: here their columns would be classes.
            target: (n,) of 0 and 1 for (n,) scores. For (n, C): (n,) class indices, C =
                background, or (n, C) of 0 and 1. Class indices for C = 1, where 0 is the class,
                need ``weight`` or ``avg_factor``, as heads give them.
            weight: (n,) or (n, C) bool, or 0 and 1 of any dtype: entries of 0 are left out. Ranks
                have no other weights: ValueError.
            avg_factor: Passed by heads, and not used: a ranking loss has its own normalisation.
                With it (n, C) targets may be soft, in [0, 1]: those above 0 are positives.
            reduction_override: Only None is supported.
            quality: (n_pos,) of the rows with a class, in row order, if that is ``box_input``.
            box_loss: Likewise with ``box_input='loss'``.
            group: (n,) integers: scores with the same number, such as the documents of a query,
                are one list. Of (n, C) scores and (n, C) labels of 0 and 1 the number is that of a
                row: ``group=torch.arange(n)`` makes each row a list. In one process, or with
                ``scope='local'``.

        Returns:
            Scalar >= 0; 0, still attached to the graph, without a positive. With
            ``box_input='loss'`` a dict of ``loss_cls`` and ``loss_bbox``.
        """
        if group is not None:
            losses = self._of_groups(cls_score, target, weight, group, quality, box_loss)
        else:
            by_head = weight is not None or avg_factor is not None
            cls_score, target = columns_of(cls_score, target, by_head)
            soft = avg_factor is not None
            lists = self.one_vs_all_lists(cls_score, target, weight, reduction_override, soft)
            values_at = self._box_values(cls_score, target, quality, box_loss)
            losses = self.rank(*lists, values_at)
        if isinstance(losses, dict):
            return {k: self.loss_weight * v for k, v in losses.items()}
        return self.loss_weight * losses

    def _of_groups(
        self,
        scores: Tensor,
        target: Tensor,
        weight: Tensor | None,
        group: Tensor,
        quality: Tensor | None,
        box_loss: Tensor | None,
    ) -> Tensor | dict[str, Tensor]:
        """Loss of a list for each value of (n,) ``group``."""
        scores, target, weight, group = groups.check_groups(scores, target, weight, group)
        if self.scope == 'global' and world_group() is not None:
            raise UserError(
                "group= with scope='global': the lists of other processes are other lists. Fix: "
                f"{type(self).__name__}(scope='local')"
            )
        column = columns_of(scores, target, False)
        lists = self.one_vs_all_lists(*column, weight)
        values_of_row = self._box_values(*column, quality, box_loss)
        return self.rank_groups(lists, group, values_of_row)

    def _box_values(
        self, cls_score: Tensor, target: Tensor, quality: Tensor | None, box_loss: Tensor | None
    ) -> Callable[[Tensor], Tensor] | None:
        """See :func:`mmrank.losses.inputs.box_values`; None where no box counts."""
        required = self.box_input is not None and self.requires_boxes
        if not required and quality is None and box_loss is None:
            return None
        return inputs.box_values(self, cls_score, target, quality, box_loss)

    def rank_groups(
        self,
        lists: tuple[Tensor, Tensor, Tensor],
        group: Tensor,
        values_of_row: Callable[[Tensor], Tensor] | None,
    ) -> Tensor | dict[str, Tensor]:
        """Loss of (1, n) scores, positives and negatives, a list for each value of ``group``."""
        parts = groups.group_lists(self.ranked_lists, lists, group, values_of_row)
        return self.list_losses(parts[0]) if len(parts) == 1 else self.part_losses(parts)

    def one_vs_all_lists(
        self,
        cls_score: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        reduction_override: str | None = None,
        soft: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(L, N) scores, bool of the positives and of the negatives; see :meth:`forward`."""
        if reduction_override is not None:
            raise ValueError(
                f'a ranking loss has no reduction to override, got {reduction_override!r}'
            )
        check_classified(cls_score, target, weight, self.num_columns)
        is_positive = one_vs_all(target, cls_score.size(1), soft)
        is_negative = ~is_positive
        if weight is not None:
            fix = 'weight > 0 to leave rows out: a rank has no weight. A loss of single rows has'
            # PISA weighs its rows; in a ranking they count or not.
            taken = weight > 0 if soft else zeros_and_ones('weight', weight, fix)
            taken = taken.unsqueeze(1) if taken.dim() == 1 else taken
            is_positive, is_negative = is_positive & taken, is_negative & taken
        return self.lists_of(cls_score), self.lists_of(is_positive), self.lists_of(is_negative)

    def lists_of(self, entries: Tensor) -> Tensor:
        """(n, C) entries as lists: (C, n), or (1, n * C) in one ranking."""
        # Blocks of a few lists read a transposed view at a tenth of the speed.
        return entries.reshape(1, -1) if self.mode == 'flatten' else entries.t().contiguous()

    def embedding_loss(self, batch: inputs.EmbeddingBatch) -> Tensor:
        """Loss of a retrieval batch, a ranking per query; ``mode`` decides on a state per class."""
        self._check_retrieval()
        lists = (batch.scores(), batch.is_positive(), batch.is_negative())
        losses = self.rank(*lists, list_classes=batch.query_labels)
        return self.loss_weight * cast(Tensor, losses)  # a dict is of boxes

    def _check_retrieval(self) -> None:
        """Refuse embeddings, where the loss or its options have no use for them."""
        why = self.no_retrieval
        if self.box_input is not None and self.requires_boxes:
            why = f'requires the boxes of the positives ({self.box_input!r})'
        if why:
            raise UserError(
                f'{type(self).__name__} {why}, which a retrieval batch does not have. Fix: another '
                f'loss: use mmrank.{self.for_retrieval}, or quality=0 of one that has the option'
            )

    def expect_cosines(self) -> None:
        """Take the settings for cosines where none was given; most defaults are such already.

        UserError where there is :attr:`no_retrieval`.
        """
        self._check_retrieval()

    def of_cosines(self):
        """A copy that does :meth:`expect_cosines`, with the parameters themselves of this loss."""
        # An optimiser may have them.
        copied = deepcopy(self, {id(x): x for x in self.parameters()})
        copied.expect_cosines()
        return copied

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

    def rank(self, *lists, **options) -> Tensor | dict[str, Tensor]:
        """Loss of L lists without ``loss_weight``; takes what :meth:`ranked_lists` takes."""
        return self.list_losses(self.ranked_lists(*lists, **options))

    def ranked_lists(
        self,
        scores: Tensor,
        is_positive: Tensor,
        is_negative: Tensor,
        values_at: Callable[[Tensor], Tensor] | None = None,
        list_classes: Tensor | None = None,
    ) -> RankedLists:
        """Activate (L, N) raw scores and gather the positives, those of all ranks.

        ``values_at`` gives one float for each positive by its column. ``list_classes`` are (L,)
        integers where the lists are queries.
        """
        world = world_group() if dist.is_available() and dist.is_initialized() else None
        group = world if self.scope == 'global' else None
        if group is not None:
            scores = scale_gradient(scores, dist.get_world_size(group))
        if self.activation == 'sigmoid':
            scores = inputs.probabilities(scores)
        # To join the positives of all ranks, the host waits for their number in any case.
        most_pairs = self.most_pairs if group is None else 0
        if values_at is not None:
            # Values of boxes are compared in pairs of positives.
            most_pairs = min(most_pairs, MOST_PAIRS)
        index, pos_mask = positive_index(is_positive, most_pairs)
        pos, values = scores.gather(1, index), None
        if values_at is not None:
            values = torch.where(pos_mask, values_at(index), 0)
        if group is not None:
            pos, values, pos_mask = inputs.gather_positives(pos, values, pos_mask, group)
            # Another rank may have wider scores.
            scores = scores.to(torch.promote_types(pos.dtype, scores.dtype))
        if self.zero_without_positives:
            counted = pos_mask.any(1, keepdim=True)
            # On a device the host would wait for the answer.
            if not (on_host(counted) and counted.all()):
                scores = torch.where(counted, scores, 0)
            pos = torch.where(pos_mask, pos, 0)
        others = world if group is None else None
        return RankedLists(
            pos, pos_mask, scores, is_positive, is_negative, values, group, others, list_classes
        )

    def list_losses(self, lists: RankedLists) -> Tensor | dict[str, Tensor]:
        """Scalar loss >= 0 of the lists, or a dict of such, without ``loss_weight``."""
        raise NotImplementedError

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


def number_of_positives(parts: Sequence[RankedLists]) -> Tensor:
    """Scalar number of positives of all lists."""
    return torch.stack([lists.pos_mask.sum() for lists in parts]).sum()


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


class StatelessRankingLoss(RankingLoss):
    """Base of losses that keep no state: subclasses implement :meth:`losses`."""

    zero_without_positives = True

    def losses(self, lists: RankedLists) -> Tensor:
        """(L,) losses of the lists, 0 for a list without positives."""
        raise NotImplementedError

    def list_losses(self, lists: RankedLists) -> Tensor:
        return self.part_losses([lists])

    def part_losses(self, parts: Sequence[RankedLists]) -> Tensor:
        losses = torch.cat([self.losses(lists) for lists in parts])
        has_positive = torch.cat([lists.has_positive for lists in parts])
        self.diagnostics = {
            'num_positive': number_of_positives(parts),
            'idle': idle_share(losses, has_positive),
            **self.extra_diagnostics(losses.detach(), has_positive),
        }
        counted = torch.cat([self.counted(lists) for lists in parts])
        loss = self.reduce_lists(losses, counted)
        return loss.to(torch.promote_types(parts[0].pos.dtype, torch.float32))

    def extra_diagnostics(self, losses: Tensor, has_positive: Tensor) -> dict[str, Tensor]:
        """Further scalars to log, of (L,) detached losses."""
        return {}

    def counted(self, lists: RankedLists) -> Tensor:
        """(L,) bool, the lists that ``reduction='mean'`` divides by."""
        return lists.has_positive
