"""The bases of losses of scores: their settings, what a call does, and the average of the lists."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.distributed import joined_group, training_group
from mmrank.errors import UserError, UserTypeError
from mmrank.losses.class_weights import ClassWeight, ClassWeights, WeighsClasses, weighed_positives
from mmrank.losses.embeddings import EmbeddingBatch, TakesCosines
from mmrank.losses.groups import check_groups, entries_of_groups, refuse_rows_of_levels
from mmrank.losses.heads import BoxHeadHooks, box_values
from mmrank.losses.lists import (
    ListSettings,
    RankedLists,
    columns_of,
    labelled_entries,
    ranked_lists,
)
from mmrank.settings import ScopedLoss, one_of
from mmrank.tensors import as_divisor, is_first_batch

#: A loss, or one for each list, or several of either by name.
Losses = Tensor | dict[str, Tensor]


class HeadLoss(BoxHeadHooks, WeighsClasses, TakesCosines, ScopedLoss):
    """Base of losses of one-vs-all scores, which rank them or score each.

    Subclasses implement :meth:`loss_of_lists`.

    Args:
        num_classes: Number of classes C, checked against the scores.
        class_weight: How often a positive of each class counts: (C,) numbers, a dict by the name
            or index of a class, 1 for the others, or ``'auto'``: the inverse of its share of the
            positives, of mean 1, or a power of it, ``('auto', 0.5)``, by the counts of
            ``mmrank.ClassCountsHook`` or :meth:`set_class_counts`. With ``mode='per_class'`` they
            weigh the mean over the classes.
    """

    mode = 'flatten'  # a list holds the scores of all classes; or ``per_class``, one for each
    activation = 'none'  # of the scores before they are compared, or ``sigmoid``
    #: None, or what the loss takes of the positives' boxes: ``'quality'`` (IoU) or ``'loss'``.
    box_input: str | None = None
    requires_boxes = True  # whether the loss refuses a batch without its ``box_input``
    takes_levels = False  # whether labels are levels: whole numbers, of which 0 is a negative
    no_groups = ''  # why it does not take ``group``, and the fix
    saturation_advice = ''

    def __init__(
        self,
        num_classes: int | None = None,
        class_weight: ClassWeight = None,
        use_sigmoid: bool = True,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        if not use_sigmoid:
            what = 'use_sigmoid=False is not supported: the loss scores each class on its own'
            raise UserError(what, 'use_sigmoid=True, or leave it out')
        weights = None if class_weight is None else ClassWeights(class_weight, num_classes)
        self.class_weights = weights
        # Not num_classes: mmdet's NumClassCheckHook takes what has that for a head of objects, and
        # an RPN has one class.
        self.num_columns = num_classes
        #: Detached scalars of the last forward by name, for ``RankingMonitorHook``.
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
        sample_idx: Tensor | None = None,
        group: Tensor | None = None,
    ) -> Losses:
        """Loss of all scores of a batch.

        Args:
            cls_score: (n,) raw scores of one list, or (n, C), any float dtype. A row of (n, C) is
                not a list of its own: see ``group``. Embeddings go into
                :class:`mmrank.losses.EmbeddingLoss`: here their columns would be classes.
            target: Of the shape of the scores 0 and 1, or levels 0, 1, 2, ... of a loss that
                ``takes_levels``; or (n,) class indices for (n, C), C = background. For C = 1, where
                0 is the class, these need ``weight`` or ``avg_factor``, as heads give them.
            weight: (n,) or (n, C) bool, or finite numbers >= 0: an entry of weight w counts as w
                entries, a constant. Those of 0 are left out, whatever their labels. None: all 1,
                also where other ranks have weights.
            avg_factor: Passed by heads, not used: a ranking loss has its own normalisation. The
                number of rows, unless a head :meth:`holds <held_by>` the loss. With it (n, C)
                targets may be soft, in [0, 1]: those above 0 are positives.
            reduction_override: Only None is supported.
            quality: (n,) of the rows, or (n_pos,) of those with a class, if that is ``box_input``.
            box_loss: Likewise with ``box_input='loss'``.
            sample_idx: (n,) places of the rows in the training set, if it ``keeps_samples``.
            group: (n,) integers: scores with the same number, such as the documents of a query,
                are one list; of (n, C) scores and labels those of the rows with it. In one process,
                or with ``scope='local'``.

        Returns:
            Scalar >= 0; 0, still attached to the graph, without a positive. With
            ``box_input='loss'`` a dict of ``loss_cls`` and ``loss_bbox``.
        """
        if self.roi_classes is not None:
            where = f'bbox_head, the head of {type(self).__name__}'
            self.training_set.check_classes(self.roi_classes, where)
        if group is not None:
            if self.no_groups:
                raise UserTypeError(f'{type(self).__name__} {self.no_groups}')
            if self.class_weights is not None:
                what = 'class_weight with group=: a list of a query has no class'
                raise UserError(what, 'leave it out, and weight=, a number for each score')
            cls_score, target, weight, group = check_groups(cls_score, target, weight, group)
            if joined_group(self) is not None:
                what = "group= with scope='global': the lists of other processes are other lists"
                raise UserError(what, f"{type(self).__name__}(scope='local')")
            avg_factor = None
        by_head = avg_factor is not None
        if by_head or reduction_override is not None:
            self.check_head_call(len(cls_score), avg_factor, reduction_override)
        cls_score, target = columns_of(cls_score, target, weight is not None or by_head)
        if not by_head:
            is_unsaid = self.takes_levels and self.mode == 'flatten' and self.num_columns is None
            if is_unsaid and group is None:
                refuse_rows_of_levels(cls_score, target)
            if is_first_batch(self, cls_score):
                warn_of_first_batch(self, cls_score, target)
        positive, negative, weight, list_weight = self.labelled(cls_score, target, weight, by_head)
        values = self.row_values(cls_score, target, quality, box_loss, sample_idx)
        entries = self.lists_of(cls_score), self.lists_of(positive), self.lists_of(negative)
        weight = None if weight is None else self.lists_of(weight)
        options = dict(weight=weight, list_weight=list_weight, group=group)
        return self.weighted(self.loss_of_lists(*entries, values, **options))

    def weighted(self, losses: Losses) -> Losses:
        """Each loss times ``loss_weight``."""
        if isinstance(losses, dict):
            return {name: self.loss_weight * loss for name, loss in losses.items()}
        return self.loss_weight * losses

    def labelled(
        self, cls_score: Tensor, target: Tensor, weight: Tensor | None, soft: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """:func:`labelled_entries` with the weights of the classes, and (C,) of lists or None."""
        is_positive, is_negative, weight = labelled_entries(
            cls_score, target, weight, self.num_columns, soft, self.takes_levels
        )
        if self.class_weights is None:
            return is_positive, is_negative, weight, None
        of_class = self.class_weights.like(cls_score)
        if self.mode == 'per_class':
            return is_positive, is_negative, weight, of_class
        is_positive, weight = weighed_positives(of_class, is_positive, weight)
        return is_positive, is_negative, weight, None

    @property
    def takes_logits(self) -> bool:
        """Whether probabilities in place of logits would be a mistake."""
        return self.activation == 'sigmoid'

    def row_values(
        self,
        cls_score: Tensor,
        target: Tensor,
        quality: Tensor | None,
        box_loss: Tensor | None,
        sample_idx: Tensor | None,
    ) -> Tensor | None:
        """(L, n) numbers of the rows of each list, of what :meth:`forward` got, or None."""
        if sample_idx is not None:
            what = f'{type(self).__name__} does not take sample_idx'
            raise UserTypeError(what, 'leave it out')
        needs_boxes = self.box_input is not None and self.requires_boxes
        if quality is None and box_loss is None and not needs_boxes:
            return None
        return box_values(self, cls_score, target, quality, box_loss)

    def lists_of(self, entries: Tensor) -> Tensor:
        """(n, C) entries as lists: (C, n), or (1, n * C) in one ranking."""
        # Blocks of a few lists read a transposed view at a tenth of the speed.
        return entries.reshape(1, -1) if self.mode == 'flatten' else entries.t().contiguous()

    def loss_of_lists(
        self, scores, is_positive, is_negative, values=None, group=None, **options
    ) -> Losses:
        """Loss of L lists without ``loss_weight``; see :func:`ranked_lists` for the arguments.

        With (n,) numbers ``group`` the others are (1, n): a list for each number.
        """
        raise NotImplementedError


class RankingLoss(HeadLoss):
    """Base of losses that rank all scores of a batch against each other.

    Subclasses implement :meth:`list_losses`, or :meth:`part_losses`. The value says little: watch
    ``risk`` in :attr:`diagnostics` and AP; choose checkpoints by the AP of the validation split.

    Args:
        mode: ``flatten``: all classes in one ranking, every score counts once per class.
            ``per_class``: one ranking per class; the loss is their mean over those with a positive.
        activation: ``none`` ranks raw logits, ``sigmoid`` scores in (0, 1).

    Attributes:
        diagnostics: Detached scalars of the last forward by name, for ``RankingMonitorHook``.
            ``argument`` is what ``x/(1 + x)`` or the like is applied to: far above 1 its gradient
            vanishes, and the hook gives the ``saturation_advice``. ``idle`` is the share of the
            lists with positives that have no gradient. ``num_positive`` is there for every loss.
    """

    #: Whether a list without a positive has neither a loss nor a gradient. Its scores are then 0: a
    #: NaN among them would reach the gradient, but not the loss.
    zero_without_positives = False
    #: Whether the negatives of a query, or list of ``group=``, count without a positive, too.
    counts_lone_queries = False
    #: Whether it counts ``lists.positives`` and ``lists.negatives``; else weights are refused.
    takes_weights = False
    cost = 'pairs'  # what a step takes time for, see :class:`ListSettings`
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
        **kwargs,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        one_of('mode', mode, ('flatten', 'per_class'))
        one_of('activation', activation, ('none', 'sigmoid'))
        self.mode = mode
        self.activation = activation

    def list_settings(self, of_queries: bool = False) -> ListSettings:
        """What :func:`ranked_lists` does with the lists, here of queries or not."""
        world = training_group(self) if dist.is_available() and dist.is_initialized() else None
        is_joined = self.scope == 'global'
        is_zeroed = self.zero_without_positives and not (of_queries and self.counts_lone_queries)
        return ListSettings(
            activation=self.activation,
            cost=self.cost,
            zero_without_positives=is_zeroed,
            group=world if is_joined else None,
            state_group=None if is_joined else world,
        )

    def embedding_loss(self, batch: EmbeddingBatch) -> Losses:
        """Loss of a retrieval batch, a ranking per query; ``mode`` decides on a state per class."""
        self.check_retrieval()
        entries = batch.scores(), batch.is_positive(), batch.is_negative()
        return self.weighted(self.loss_of_lists(*entries, **batch.list_options()))

    def loss_of_lists(
        self, scores, is_positive, is_negative, values=None, group=None, **options
    ) -> Losses:
        entries = scores, is_positive, is_negative, values
        if group is None:
            settings = self.list_settings(options.get('list_classes') is not None)
            return self.loss_of_parts([ranked_lists(settings, *entries, **options)])
        takes_parts = type(self).list_losses is RankingLoss.list_losses
        grouped = entries_of_groups(*entries, options.get('weight'), group, takes_parts)
        settings = self.list_settings(of_queries=True)
        return self.loss_of_parts([ranked_lists(settings, *one) for one in grouped])

    def loss_of_parts(self, parts: Sequence[RankedLists]) -> Losses:
        """Loss of the lists of all parts, without ``loss_weight``, and the diagnostics."""
        if parts[0].weight is not None and not self.takes_weights:
            name = type(self).__name__
            raise UserError(
                f'{name} takes no weights but 0 and 1. Fix: weight=weight > 0; another loss, as '
                'mmrank.StableAPLoss; or takes_weights = True in a loss of yours that counts '
                'lists.positives and lists.negatives'
            )
        losses = self.list_losses(parts[0]) if len(parts) == 1 else self.part_losses(parts)
        counted = torch.cat([self.counted(lists) for lists in parts])
        total = self.total(losses, counted, parts)
        self.diagnostics.update(self.diagnose(losses, counted, parts))
        self.diagnostics['num_positive'] = torch.stack([x.pos_mask.sum() for x in parts]).sum()
        dtype = torch.promote_types(parts[0].pos.dtype, torch.float32)
        if isinstance(total, dict):
            return {name: loss.to(dtype) for name, loss in total.items()}
        return total.to(dtype)

    def list_losses(self, lists: RankedLists) -> Losses:
        """(L,) losses >= 0 of the lists, 0 for those that are not counted, or a dict of such."""
        return self.part_losses([lists])

    def part_losses(self, parts: Sequence[RankedLists]) -> Losses:
        """:meth:`list_losses` of lists of unlike lengths, in parts of like lengths.

        A loss that implements :meth:`list_losses` gets a padded matrix of all lists of ``group=``.
        """
        all_losses: list[Any] = [self.losses(lists) for lists in parts]  # of one kind
        if not isinstance(all_losses[0], dict):
            return torch.cat(all_losses)
        return {name: torch.cat([x[name] for x in all_losses]) for name in all_losses[0]}

    def losses(self, lists: RankedLists) -> Losses:
        """:meth:`list_losses` that depend on nothing but the lists."""
        raise NotImplementedError

    def counted(self, lists: RankedLists) -> Tensor:
        """(L,) bool of the lists that the mean divides by, or their float weights."""
        return lists.counted

    def total(self, losses: Any, counted: Tensor, parts: Sequence[RankedLists]) -> Losses:
        """Loss of the batch of what :meth:`part_losses` returns: its mean, of each in a dict."""
        if isinstance(losses, dict):
            return {name: self.reduce_lists(loss, counted) for name, loss in losses.items()}
        return self.reduce_lists(losses, counted)

    def diagnose(self, losses: Any, counted: Tensor, parts) -> dict[str, Tensor]:
        """Detached scalars of the batch by name; see :meth:`total` for the arguments."""
        return {}

    def state_size(self) -> int:
        """How many lists have a state of their own: one in all, or one for each class."""
        if self.mode == 'flatten':
            return 1
        if self.num_columns is None:
            what = "mode='per_class' keeps a state for each class and requires num_classes"
            fix = "num_classes=the number of classes of the data set, or mode='flatten'"
            raise UserError(what, fix)
        return self.num_columns

    def reduce_lists(self, losses: Tensor, counted: Tensor) -> Tensor:
        """Mean of (L,) losses, 0 for lists that do not count, by bool or (L,) float weights."""
        if losses.shape != counted.shape:
            shapes = f'of shape {tuple(counted.shape)}, got {tuple(losses.shape)}'
            what = f'{type(self).__name__} must return a loss for each list, {shapes}'
            raise UserError(what, 'leave the mean to the base class')
        if counted.dtype == torch.bool:
            return losses.sum() / counted.sum().clamp(min=1)
        return (losses * counted).sum() / as_divisor(counted.sum())


class StatelessRankingLoss(RankingLoss):
    """Base of losses that keep no state: subclasses implement :meth:`losses`."""

    zero_without_positives = True

    def diagnose(self, losses, counted, parts) -> dict[str, Tensor]:
        has_positive = torch.cat([lists.has_positive for lists in parts])
        more = self.extra_diagnostics(losses.detach(), has_positive)
        return {'idle': idle_share(losses, has_positive), **more}

    def extra_diagnostics(self, losses: Tensor, has_positive: Tensor) -> dict[str, Tensor]:
        """Further scalars to log, of (L,) detached losses."""
        return {}


@torch.no_grad()
def idle_share(risks: Tensor, has_positive: Tensor) -> Tensor:
    """Share of the (L,) lists with positives whose risk is 0: no pair of theirs has a gradient."""
    has_positive = has_positive > 0
    return (has_positive & (risks == 0)).sum() / has_positive.sum().clamp(min=1)


@torch.no_grad()
def warn_of_first_batch(loss: torch.nn.Module, scores: Tensor, target: Tensor) -> None:
    """Warn of embeddings in place of scores, and of probabilities in place of logits."""
    name = type(loss).__name__
    columns = scores.size(1)
    is_unit = ((scores.double().norm(dim=1) - 1).abs() < 1e-2).all()
    is_sharp = ((scores == 0) | (scores == 1)).all()
    classes = target.unique()
    # Several rows of each class, and no background.
    are_few = target.dim() == 1 and 2 * len(classes) < min(scores.shape) and classes[-1] < columns
    counts_from_one = 1 < len(classes) == columns and classes[0] == 1
    fix = f'Fix: mmrank.EmbeddingLoss({name}())(embeddings, classes)'
    if columns > 1 and target.dim() == 1 and is_unit and not is_sharp:
        text = f'each row of cls_score, {columns} classes, has length 1. {fix}'
    elif target.dim() == 1 and counts_from_one:
        text = 'target has each class from 1 on and none is 0; '
        text += f'{columns} is the background. Fix: classes from 0, target - 1'
    elif loss.takes_logits and ((scores >= 0) & (scores <= 1)).all() and not is_sharp:
        text = f'{name} takes logits, and all scores are in [0, 1]. '
        text += 'Fix: scores before the sigmoid or softmax'
    elif are_few and loss.num_columns is None:
        text = f'{len(classes)} of the {columns} columns of cls_score occur as a class. {fix} if '
        text += f'they are embeddings, else num_classes={columns}'
    else:
        return
    warnings.warn(text, stacklevel=5)
