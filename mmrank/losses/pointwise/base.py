"""What pointwise losses share, with and without class counts."""

import torch
from torch import Tensor

from mmrank.distributed import all_reduce_sum, joined_group, scale_gradient
from mmrank.errors import UserError
from mmrank.losses.base import warn_of_first_batch
from mmrank.losses.class_weights import ClassWeight, ClassWeights, WeighsClasses
from mmrank.losses.lists import (
    check_classified,
    class_indices,
    counted_and_weight,
    one_vs_all,
    without_left_out,
)
from mmrank.settings import ScopedLoss
from mmrank.state import LabelCounts
from mmrank.state.class_counts import Counts
from mmrank.tensors import (
    as_divisor,
    at_least_float32,
    checked_weight,
    clamp_infinite,
    is_first_batch,
)


class PointwiseLoss(WeighsClasses, ScopedLoss):
    """Base of losses of single scores: for each column the mean over the rows of all ranks.

    With ``use_sigmoid`` every column is a binary problem of its own, in which the class competes
    with the rest; without it the classes compete by softmax. Subclasses implement
    :meth:`sigmoid_losses` and, unless they have one form, :meth:`softmax_losses`.

    Args:
        num_classes: Number of classes C, checked against the scores.
        use_sigmoid: See above. None: softmax for (n,) class indices, where the loss has that form,
            sigmoid for (n, C) labels.
        class_weight: How often a positive of each class counts, see
            :class:`mmrank.losses.HeadLoss`.
    """

    takes_logits = True

    def __init__(
        self,
        num_classes: int | None = None,
        use_sigmoid: bool | None = None,
        class_weight: ClassWeight = None,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        weights = None if class_weight is None else ClassWeights(class_weight, num_classes)
        self.class_weights = weights
        if use_sigmoid is False and num_classes == 1:
            raise ValueError('num_classes=1 is a binary problem, which needs use_sigmoid=True')
        self.num_columns = num_classes
        if num_classes == 1 or type(self).softmax_losses is PointwiseLoss.softmax_losses:
            use_sigmoid = True
        self.use_sigmoid = use_sigmoid

    def forward(
        self,
        cls_score: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | None = None,
        reduction_override: str | None = None,
    ) -> Tensor:
        """Compute the loss of a batch.

        Args:
            cls_score: (n, C) raw scores, any float dtype.
            target: (n,) class indices, or (n, C) of 0 and 1, which softmax does not take. With
                ``use_sigmoid=True`` C = no class.
            weight: (n,) finite weights >= 0 of the rows, or (n, C) of the entries, which softmax
                does not take: an entry of weight w counts as w entries. One of 0 is not read.
            avg_factor: Accepted because heads pass it, not used: the mean is over the rows. With it
                (n, C) targets may be soft, in [0, 1]: those above 0 are positives.
            reduction_override: Likewise; only None is supported.

        Returns:
            Scalar >= 0: sum over the columns of the weighted mean over the rows; 0, still attached
            to the graph, when there is no row. RuntimeError if class counts that it needs are not
            set.
        """
        if reduction_override is not None:
            raise ValueError(f'reduction_override={reduction_override!r} is not supported')
        check_classified(cls_score, target, self.num_columns)
        if avg_factor is None and is_first_batch(self, cls_score):
            warn_of_first_batch(self, cls_score, target)
        by_sigmoid = self.use_sigmoid
        if by_sigmoid is None:
            by_sigmoid = target.dim() == 2 or cls_score.size(1) == 1
        if weight is not None:
            rows = tuple(cls_score.shape[:1])
            checked_weight('weight', weight, rows, tuple(cls_score.shape))
            if weight.dim() == 2 and not by_sigmoid:
                raise UserError(
                    f'weight of shape {tuple(weight.shape)}, but with softmax a row has one label '
                    f'and one weight. Fix: weight of shape {rows}, or use_sigmoid=True'
                )
            weight = weight.unsqueeze(1) if weight.dim() == 1 else weight
            counted, _ = counted_and_weight(weight)
            if counted is not None:
                # A score may be NaN, and 0 * NaN is not 0.
                cls_score = cls_score.masked_fill(~counted, 0)
                target = without_left_out(target, counted)
        group = joined_group(self)
        if group is not None:
            cls_score = scale_gradient(cls_score, group.size())
        # Small probabilities are lost in half precision.
        cls_score = at_least_float32(cls_score)
        cls_score = clamp_infinite(cls_score)  # inf - inf is NaN
        if by_sigmoid:
            target = one_vs_all(target, cls_score.size(1), soft=avg_factor is not None)
            losses, share = self.sigmoid_losses(cls_score, target)
        else:
            if target.dim() != 1:
                raise UserError(
                    'softmax needs one class per sample, (n,) indices, got a target of shape '
                    f'{tuple(target.shape)}. Fix: target.argmax(1), or use_sigmoid=True for several'
                )
            target = class_indices(target, cls_score.size(1), cls_score.size(1) - 1)
            losses, share = (x[:, None] for x in self.softmax_losses(cls_score, target))
        if self.class_weights is not None:
            of_class = self.class_weights.of(cls_score.size(1)).to(losses)
            own = torch.where(target, of_class, 1) if by_sigmoid else of_class[target, None]
            weight = own if weight is None else own * weight
        if weight is not None:
            weight = weight.to(losses)
            losses = losses * weight
            share = share * weight
        sums = torch.broadcast_tensors(losses.double().sum(0), share.double().sum(0))
        total, rows = all_reduce_sum(torch.stack(sums), group)
        # A batch may hold none of the classes that weigh anything.
        rows = as_divisor(rows)
        loss = (total / rows).sum().to(losses.dtype)
        return self.loss_weight * loss

    def sigmoid_losses(self, scores: Tensor, is_positive: Tensor) -> tuple[Tensor, Tensor]:
        """(n, C) losses and (n, C) or (n, 1) shares in the mean of (n, C) scores and bool."""
        raise NotImplementedError

    def softmax_losses(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """(n,) losses and shares of (n, C) scores with (n,) int64 classes."""
        raise NotImplementedError


class ClassCountLoss(PointwiseLoss):
    """Base of losses that treat a class by its number of samples.

    Args:
        class_counts: (C,) positives of each class in the training set. None:
            ``mmrank.ClassCountsHook`` sets them.
        num_classes: Number of classes C. None: as many as there are counts.
        num_samples: Number of samples of the training set, with ``class_counts``. None: their sum.
    """

    def __init__(
        self,
        class_counts: Counts | None = None,
        num_classes: int | None = None,
        num_samples: int | None = None,
        **kwargs,
    ) -> None:
        counts = LabelCounts(num_classes, class_counts, num_samples)
        super().__init__(counts.num_classes, **kwargs)
        self.wants_class_counts = class_counts is None
        self.counts = counts

    def set_class_counts(self, counts: Counts, num_samples: int | None = None) -> None:
        self.counts.set(counts, num_samples)
        self.num_columns = self.counts.num_classes
        if self.has_auto_weights:
            super().set_class_counts(counts, num_samples)
