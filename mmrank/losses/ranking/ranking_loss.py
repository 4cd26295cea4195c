"""Bases of the registered ranking losses."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook

from mmrank.autograd import on_host
from mmrank.distributed import scale_gradient, world_group
from mmrank.errors import UserError
from mmrank.functional.ranking.lists import check_classified, one_vs_all, positive_index
from mmrank.gathering import all_gather_lists, join
from mmrank.losses.inputs import EmbeddingBatch, box_values, one_of
from mmrank.losses.setting_names import NamedSettings

from .dense_head_check import refuse_stock_dense_head
from .roi_classification import RoIClassificationMixin


def _sigmoid(scores: Tensor) -> Tensor:
    # In half precision all scores near 1 would tie.
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    # The slope at NaN is NaN, also where a list does not count.
    broken = scores.isnan()
    return torch.where(broken, scores, scores.masked_fill(broken, 0).sigmoid())


#: Functions of the raw scores, by ``activation``.
ACTIVATIONS = {'none': lambda scores: scores, 'sigmoid': _sigmoid}


@dataclass
class RankedLists:
    """L rankings of a batch, what a listwise loss is computed from.

    Attributes:
        pos: (L, P) activated scores of the positives, padded; those of all ranks when ``group`` is
            set.
        pos_mask: (L, P) bool, False for padding.
        scores: (L, N) activated scores of this rank.
        is_positive: (L, N) bool, True for the positives of this rank.
        neg_mask: (L, N) bool, True for the negatives.
        values: (L, P) one value for each positive, such as the quality of its box or its box loss,
            or None.
        group: Process group over which the negatives are spread, or None.
        state_group: Process group whose ranks hold other positives than
            those in ``pos``, or None.
        list_classes: (L,) integer class of each list, or None if list i is that of class i or there
            is one list in all.
    """

    pos: Tensor
    pos_mask: Tensor
    scores: Tensor
    is_positive: Tensor
    neg_mask: Tensor
    values: Tensor | None
    group: object
    state_group: object
    list_classes: Tensor | None = None


class RankingLoss(NamedSettings, RoIClassificationMixin, nn.Module):
    """Base of losses that rank all scores of a batch against each other.

    Heads that call a loss once per feature level must gather first (see
    :func:`mmrank.models.dense_heads.ListwiseHead`). Subclasses implement
    :meth:`list_losses`.

    Args:
        num_classes: Number of classes C, checked against the scores.
        mode: ``flatten``: all classes in one ranking, every score counts once per class.
            ``per_class``: one ranking per class.
        activation: ``none`` ranks raw logits, ``sigmoid`` scores in (0, 1).
        scope: ``global``: in distributed training the scores of all ranks
            form one ranking, exactly as in a single process. ``local``: each rank ranks its own.
        loss_weight: Factor of the whole loss.
        use_sigmoid: Read by mmdet heads from the config: one output channel per class and sigmoid
            at test time, which keeps the ranking. Only True is supported.
        reduction: How the rankings of ``per_class`` are put together:
            ``mean`` over the classes that have a positive, or ``sum``.

    Attributes:
        box_input: What the loss requires of the boxes: None, ``'quality'`` ((n_pos,) IoU of each
            positive's predicted box) or ``'loss'`` ((n_pos,) its box loss, with gradient).
        diagnostics: Detached scalars of the last forward by name;
            :class:`mmrank.engine.hooks.RankingMonitorHook` logs them. ``argument`` is what an outer
            function like ``x/(1 + x)`` is applied to: far above 1 its gradient vanishes.
        saturation_advice: What to change when ``argument`` stays far above 1.
        ignores_empty_lists: Whether a list without a positive has neither a loss nor a gradient.
            Its scores are then 0: a NaN among them would reach the gradient, but not the loss.

    Raises:
        ValueError: On an unknown choice.
        UserError: If ``use_sigmoid`` is False. So does a dense head of mmdet that takes the loss
            and does not gather.
    """

    ignores_empty_lists = False
    ranks_batches = True  # not single levels: see refuse_stock_dense_head
    box_input: str | None = None
    saturation_advice: str = ''

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
        one_of('mode', mode, ('flatten', 'per_class'))
        one_of('reduction', reduction, ('mean', 'sum'))
        one_of('scope', scope, ('global', 'local'))
        one_of('activation', activation, ACTIVATIONS)
        if not use_sigmoid:
            raise UserError(
                'use_sigmoid=False is not supported: a ranking loss scores every class '
                'independently. Fix: use_sigmoid=True, or leave it out'
            )
        self.num_classes, self.mode = num_classes, mode
        self.activation, self.scope = activation, scope
        self.reduction = reduction
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
    ) -> Tensor | dict[str, Tensor]:
        """Compute the loss of all scores of a batch.

        Args:
            cls_score: (n, C) raw scores, any float dtype.
            target: (n,) class indices, C = background, or (n, C) of 0 and 1.
            weight: (n,) or (n, C), numbers or bool; entries that are not > 0 are ignored.
            avg_factor: Accepted because mmdet heads pass it. A ranking loss has its own
                normalisation, so it is not used.
            reduction_override: Likewise; only None is supported.
            quality: (n_pos,) quality in [0, 1] of each row with a class, in row order; for losses
                with ``box_input='quality'``.
            box_loss: (n_pos,) box loss of each row with a class, in row
                order; for losses with ``box_input='loss'``.

        Returns:
            Scalar >= 0; 0, still attached to the graph, when there is no positive. Losses with
            ``box_input='loss'`` return a dict of ``loss_cls`` and ``loss_bbox``.

        Raises:
            ValueError: If shapes or class counts do not fit.
            TypeError: If the scores are not of a float dtype.
        """
        lists = self.one_vs_all_lists(cls_score, target, weight, reduction_override)
        values_at = None
        if any(x is not None for x in (self.box_input, quality, box_loss)):
            values_at = box_values(self, cls_score, target, quality, box_loss)
        losses = self.rank(*lists, values_at)
        if isinstance(losses, dict):
            return {k: self.loss_weight * v for k, v in losses.items()}
        return self.loss_weight * losses

    def one_vs_all_lists(
        self,
        cls_score: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        reduction_override: str | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Check the arguments of :meth:`forward` and lay them out as lists.

        Returns:
            (L, N) scores, bool of the positives and bool of the negatives:
            one list per class, or one in all.

        Raises:
            ValueError: If shapes, class counts or labels do not fit.
            TypeError: If the scores are not of a float dtype.
        """
        if reduction_override is not None:
            raise ValueError(
                f'a ranking loss has no reduction to override, got {reduction_override!r}'
            )
        check_classified(cls_score, target, weight, self.num_classes)
        is_positive = one_vs_all(target, cls_score.size(1))
        is_negative = ~is_positive
        if weight is not None:
            taken = weight if weight.dtype == torch.bool else weight > 0
            taken = taken.unsqueeze(1) if taken.dim() == 1 else taken
            is_positive, is_negative = is_positive & taken, is_negative & taken
        return tuple(self.lists_of(x) for x in (cls_score, is_positive, is_negative))

    def lists_of(self, entries: Tensor) -> Tensor:
        """(n, C) entries as lists: (C, n), or (1, n * C) in one ranking."""
        if self.mode == 'flatten':
            return entries.reshape(1, -1)
        return entries.t()

    def embedding_loss(self, batch: EmbeddingBatch) -> Tensor:
        """Compute the loss of a retrieval batch, each query one ranking.

        ``mode`` only decides whether there is a state for each class.

        Args:
            batch: Queries and gallery of this rank.

        Returns:
            Scalar >= 0; 0, still attached to the graph, when no query has a positive.
        """
        return self.loss_weight * self.rank(
            batch.scores(),
            batch.is_positive(),
            batch.is_negative(),
            list_classes=batch.query_labels,
        )

    def rank(
        self,
        scores: Tensor,
        is_positive: Tensor,
        is_negative: Tensor,
        values_at: Callable[[Tensor], Tensor] | None = None,
        list_classes: Tensor | None = None,
    ) -> Tensor | dict[str, Tensor]:
        """Loss of L lists of raw scores: classes, or queries of a batch.

        See :meth:`ranked_lists` for the arguments and :meth:`list_losses` for what it returns.
        """
        lists = self.ranked_lists(scores, is_positive, is_negative, values_at, list_classes)
        return self.list_losses(lists)

    def ranked_lists(
        self,
        scores: Tensor,
        is_positive: Tensor,
        is_negative: Tensor,
        values_at: Callable[[Tensor], Tensor] | None = None,
        list_classes: Tensor | None = None,
    ) -> RankedLists:
        """Activate the scores and gather the positives, those of all ranks.

        Args:
            scores: (L, N) raw scores.
            is_positive: (L, N) bool.
            is_negative: (L, N) bool; an entry that is neither is ignored.
            values_at: Returns one float for each positive, given its column: (L, P) of (L, P).
                None: the positives have no values.
            list_classes: (L,) integer class of each list, where the lists are queries, for losses
                that keep state per class.

        Returns:
            What :meth:`list_losses` computes the loss from.
        """
        world = world_group()
        group = world if self.scope == 'global' else None
        if group is not None:
            scores = scale_gradient(scores, dist.get_world_size(group))
        scores = ACTIVATIONS[self.activation](scores)
        index, pos_mask = positive_index(is_positive)
        pos, values = scores.gather(1, index), None
        if values_at is not None:
            values = torch.where(pos_mask, values_at(index), 0)
        if group is not None:
            parts = [pos]
            if values is not None:
                size = dist.get_world_size(group)
                parts.append(scale_gradient(values, size))
            # Scores and values travel together: one wait for the width.
            own = join(parts)
            joined, masks = all_gather_lists(own, pos_mask.repeat(len(parts), 1), group)
            if joined.dtype != own.dtype:
                # Another rank has wider scores.
                scores = scores.to(joined.dtype)
            pos, *rest = joined.chunk(len(parts))
            values = rest[0] if rest else None
            pos_mask = masks[: pos.size(0)]
        if self.ignores_empty_lists:
            counted = pos_mask.any(1, keepdim=True)
            # Elsewhere the host would wait for the answer.
            if not (on_host(counted) and counted.all()):
                scores = torch.where(counted, scores, 0)
            pos = torch.where(pos_mask, pos, 0)
        return RankedLists(
            pos,
            pos_mask,
            scores,
            is_positive,
            is_negative,
            values,
            group,
            world if group is None else None,
            list_classes,
        )

    def list_losses(self, lists: RankedLists) -> Tensor | dict[str, Tensor]:
        """Loss of the gathered lists; what a subclass has to define.

        Args:
            lists: The rankings of the batch.

        Returns:
            Scalar >= 0, or a dict of such, without ``loss_weight``.
        """
        raise NotImplementedError

    #: Whether :meth:`separate_losses` serves this loss as it is set up.
    can_be_separate: bool = False

    def separate_losses(self, lists: RankedLists) -> Tensor:
        """Losses of lists that have nothing to do with each other.

        A loss may offer it beside :meth:`list_losses`, for
        :func:`~mmrank.losses.ranking.separate_rankings.separate_rankings`.
        Its buffers of one number then have one for each list.

        Args:
            lists: One ranking for each list.

        Returns:
            (L,) losses >= 0, without ``loss_weight``; :attr:`diagnostics`
            are (L,), too.
        """
        raise NotImplementedError

    def reduce_lists(self, losses: Tensor, has_positive: Tensor) -> Tensor:
        """Put the losses of the lists together as ``reduction`` says.

        Args:
            losses: (L,) losses, 0 for a list without positives.
            has_positive: (L,) bool.

        Returns:
            Scalar.
        """
        total = losses.sum()
        if self.reduction == 'mean':
            total = total / has_positive.sum().clamp(min=1)
        return total

    def logit_centre(self) -> Tensor | None:
        """Raw score that heads show as 0.5 at test time.

        The offset of the scores does not change a ranking loss, so a fixed score threshold requires
        the place of the positives.

        Returns:
            (1,) or (C,) tensor, or None to leave the scores as they are.
        """
        return None

    @torch.no_grad()
    def shift_logits(self, offset: Tensor) -> None:
        """Move the state with the raw scores of a model.

        A loss with a :meth:`logit_centre` keeps numbers in units of the scores. When a constant is
        added to the scores of each class, as
        :func:`mmrank.models.centre_folding.fold_centres` does, they have to follow. The base has no
        such state.

        Args:
            offset: (1,) or (C,), what is added to the raw scores.
        """

    def _shifted(self, scores: Tensor, offset: Tensor) -> Tensor:
        """Activated scores after their raw scores have moved."""
        offset = offset.to(scores)
        if offset.numel() != scores.numel():
            offset = offset.mean()  # one state for all classes
        if self.activation == 'sigmoid':
            return (scores.logit(1e-6) + offset).sigmoid()
        return scores + offset


register_module_module_registration_hook(refuse_stock_dense_head)


class PaddedLoss(RankingLoss):
    """Base of losses without state: a function of the lists, and settings.

    Subclasses set the function and pass its settings on.

    Args:
        settings: Keyword arguments of the function.
        **kwargs: Those of :class:`RankingLoss`.

    Attributes:
        function: A :func:`mmrank.functional.ranking_function` such as
            :func:`mmrank.functional.smooth_ap_loss`; a ``staticmethod`` of
            the subclass.

    Raises:
        ValueError: On a parameter out of range.
    """

    ignores_empty_lists = True
    function: Callable[..., Tensor]

    def __init__(self, settings: dict, **kwargs) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        # Refuse a bad setting before training starts.
        nothing = torch.zeros(1, 0)
        self.function(nothing, nothing, **settings)

    def list_losses(self, lists: RankedLists) -> Tensor:
        """Reduced losses of the lists."""
        losses = self.function(
            lists.pos,
            lists.scores,
            pos_mask=lists.pos_mask,
            neg_mask=lists.neg_mask,
            group=lists.group,
            **self.settings,
        )
        self.diagnostics = {
            'num_positive': lists.pos_mask.sum(),
            **self.extra_diagnostics(losses.detach(), lists),
        }
        loss = self.reduce_lists(losses, self.counted(lists))
        return loss.to(torch.promote_types(lists.pos.dtype, torch.float32))

    def extra_diagnostics(self, losses: Tensor, lists: RankedLists) -> dict[str, Tensor]:
        """Detached scalars to log beside the number of positives.

        Args:
            losses: (L,) losses, detached.
            lists: The rankings of the batch.
        """
        return {}

    def counted(self, lists: RankedLists) -> Tensor:
        """(L,) bool, the lists that ``reduction='mean'`` divides by."""
        return lists.pos_mask.any(1)
