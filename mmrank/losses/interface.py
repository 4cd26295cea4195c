"""The base of losses that heads call with the scores of a batch."""

from copy import deepcopy

from torch import Tensor

from mmrank.checks import check_count, check_not_negative, one_of
from mmrank.distributed import world_group
from mmrank.errors import UserError
from mmrank.losses import groups, inputs
from mmrank.losses.heads import BoxHeadHooks, refuse_stock_head
from mmrank.losses.lists import check_classified, columns_of, one_vs_all
from mmrank.losses.setting_names import NamedSettings
from mmrank.tensors import zeros_and_ones


class HeadLoss(NamedSettings, BoxHeadHooks):
    """Base of losses of one-vs-all scores, which rank them or score each.

    Subclasses implement :meth:`loss_of_lists` and :meth:`loss_of_groups`.

    Args:
        num_classes: Number of classes C, checked against the scores.
        scope: ``global``: in distributed training the scores of all ranks form one batch, exactly
            as in a single process. ``local``: each rank has its own.
        loss_weight: Factor of the whole loss.
        use_sigmoid: Read by mmdet heads from the config: one output channel per class and sigmoid
            at test time, which keeps the ranking. Only True is supported.

    Attributes:
        diagnostics: Detached scalars of the last forward by name, for ``RankingMonitorHook``.

    Raises:
        ValueError, UserError: On an unknown choice or setting; by a dense head of mmdet that does
            not gather.
    """

    #: ``flatten``: a list holds the scores of all classes. ``per_class``: there is one for each.
    mode = 'flatten'
    #: Of the scores before they are compared, ``none`` or ``sigmoid``.
    activation = 'none'
    #: None, or what the loss takes of the positives' boxes: ``'quality'`` (IoU) or ``'loss'``.
    box_input: str | None = None
    #: Whether the loss refuses a batch without its ``box_input``.
    requires_boxes = True
    saturation_advice = ''
    #: Why the loss has no use for a retrieval batch; with a ``box_input`` it is for want of boxes.
    no_retrieval = ''
    #: The loss that the refusal of a retrieval batch names.
    for_retrieval = 'StableAPLoss'

    def __init__(
        self,
        num_classes: int | None = None,
        scope: str = 'global',
        loss_weight: float = 1.0,
        use_sigmoid: bool = True,
    ) -> None:
        super().__init__()
        refuse_stock_head(self)
        one_of('scope', scope, ('global', 'local'))
        check_not_negative(loss_weight=loss_weight)
        if num_classes is not None:
            check_count('num_classes', num_classes)
        if not use_sigmoid:
            raise UserError(
                'use_sigmoid=False is not supported: the loss scores each class on its own. '
                'Fix: use_sigmoid=True, or leave it out'
            )
        # Not num_classes: mmdet's NumClassCheckHook takes what has that for a head of objects, and
        # an RPN has one class.
        self.num_columns = num_classes
        self.scope = scope
        self.loss_weight = loss_weight
        self.use_sigmoid = use_sigmoid
        self.diagnostics: dict[str, Tensor] = {}
        self._knows_its_head = False

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
                not a list of its own: see ``group``. Embeddings go into
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
                are one list. Of (n, C) scores and (n, C) labels of 0 and 1 the number is the number
                of a row: ``group=torch.arange(n)`` makes each row a list. In one process, or with
                ``scope='local'``.

        Returns:
            Scalar >= 0; 0, still attached to the graph, without a positive. With
            ``box_input='loss'`` a dict of ``loss_cls`` and ``loss_bbox``.
        """
        if group is not None:
            losses = self._of_groups(cls_score, target, weight, group, quality, box_loss)
        else:
            cls_score, target, lists = self.called_lists(
                cls_score, target, weight, avg_factor, reduction_override
            )
            values = self._box_values(cls_score, target, quality, box_loss)
            losses = self.loss_of_lists(*lists, values)
        if isinstance(losses, dict):
            return {k: self.loss_weight * v for k, v in losses.items()}
        return self.loss_weight * losses

    def called_lists(
        self,
        cls_score: Tensor,
        target: Tensor,
        weight: Tensor | None,
        avg_factor: float | None,
        reduction_override: str | None,
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
        """(n, C) scores, their labels and their lists; see :meth:`forward`."""
        soft = avg_factor is not None
        if soft and not self._knows_its_head:
            refuse_stock_head(self)
            self._knows_its_head = True
        cls_score, target = columns_of(cls_score, target, weight is not None or soft)
        lists = self.one_vs_all_lists(cls_score, target, weight, reduction_override, soft)
        return cls_score, target, lists

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
        row_values = self._box_values(*column, quality, box_loss)
        return self.loss_of_groups(lists, group, row_values)

    def _box_values(
        self, cls_score: Tensor, target: Tensor, quality: Tensor | None, box_loss: Tensor | None
    ) -> Tensor | None:
        """(L, n) values of the boxes of each list; None where no box counts."""
        required = self.box_input is not None and self.requires_boxes
        if not required and quality is None and box_loss is None:
            return None
        values = inputs.box_values(self, cls_score, target, quality, box_loss)
        if values is None:
            return None
        number = 1 if self.mode == 'flatten' else cls_score.size(1)
        return values.expand(number, -1)

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
            raise ValueError(f'there is no reduction to override, got {reduction_override!r}')
        check_classified(cls_score, target, weight, self.num_columns)
        is_positive = one_vs_all(target, cls_score.size(1), soft)
        is_negative = ~is_positive
        if weight is not None:
            fix = 'weight > 0 to leave rows out: a rank has no weight. A loss of single rows has'
            # Some heads weigh their rows; in a ranking these count or not.
            taken = weight > 0 if soft else zeros_and_ones('weight', weight, fix)
            taken = taken.unsqueeze(1) if taken.dim() == 1 else taken
            is_positive = is_positive & taken
            is_negative = is_negative & taken
        return self.lists_of(cls_score), self.lists_of(is_positive), self.lists_of(is_negative)

    def lists_of(self, entries: Tensor) -> Tensor:
        """(n, C) entries as lists: (C, n), or (1, n * C) in one ranking."""
        # Blocks of a few lists read a transposed view at a tenth of the speed.
        return entries.reshape(1, -1) if self.mode == 'flatten' else entries.t().contiguous()

    def loss_of_lists(
        self,
        scores: Tensor,
        is_positive: Tensor,
        is_negative: Tensor,
        values: Tensor | None = None,
        list_classes: Tensor | None = None,
    ) -> Tensor | dict[str, Tensor]:
        """Loss of L lists without ``loss_weight``.

        Args:
            scores: (L, N) raw scores.
            is_positive: (L, N) bool, True at the positives.
            is_negative: (L, N) bool, True at the negatives.
            values: (L, M) floats of the boxes of a list, each of which has N / M scores in a row.
            list_classes: (L,) integers where the lists are queries.
        """
        raise NotImplementedError

    def loss_of_groups(
        self, lists: tuple[Tensor, Tensor, Tensor], group: Tensor, row_values: Tensor | None
    ) -> Tensor | dict[str, Tensor]:
        """Loss of (1, n) scores, positives and negatives, a list for each value of ``group``.

        ``row_values`` are (1, n).
        """
        raise NotImplementedError

    def _check_retrieval(self) -> None:
        """Raise UserError where the loss or its options have no use for embeddings."""
        why = self.no_retrieval
        if self.box_input is not None and self.requires_boxes:
            why = f'requires the boxes of the positives ({self.box_input!r})'
        if why:
            raise UserError(
                f'{type(self).__name__} {why}, which a retrieval batch does not have. Fix: another '
                f'loss: use mmrank.{self.for_retrieval}, or quality=0 of one that has the option'
            )

    def expect_cosines(self) -> None:
        """Take the settings for cosines where none was given; most defaults are such already."""
        self._check_retrieval()

    def of_cosines(self):
        """A copy that expects cosines; it shares the parameters, which an optimiser may have."""
        copied = deepcopy(self, {id(x): x for x in self.parameters()})
        copied.expect_cosines()
        return copied
