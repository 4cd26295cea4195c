"""Point-wise losses whose target is the quality (IoU) of the box: what detectors are compared with.

They rank nothing, and take the place of a ranking loss in every head and adapter, so that all
losses see the same targets and IoUs. With p = sigmoid(s) and the quality q of a positive::

    loss = ( sum_pos weight(p, q) BCE(s, target(p, q)) + sum_neg weight(p) BCE(s, 0) ) / n_pos

An entry of weight w in the call counts as w entries, in both sums and in ``n_pos``.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from mmrank.autograd import Function, can_sync, once_differentiable
from mmrank.distributed import all_reduce_sum, joined_group, scale_gradient
from mmrank.losses.base import HeadLoss
from mmrank.losses.lists import positive_index, values_at
from mmrank.settings import check_not_negative, check_within
from mmrank.tensors import as_divisor, at_least_float32, clamp_infinite, refuse_nan


class _FirstOrder(Function):
    """Identity of scores whose second derivative is refused: weights and targets are constants."""

    @staticmethod
    def forward(ctx, scores):
        ctx.save_for_backward(scores)
        return scores.view_as(scores)

    @staticmethod
    @once_differentiable('A point-wise loss with constant weights')
    def backward(ctx, grad):
        return grad


def power(x: Tensor, exponent: float) -> Tensor:
    """``x^exponent`` of x >= 0, whose slope at 0 is finite for every exponent."""
    return (x if exponent >= 1 else x.clamp(min=1e-30)) ** exponent


class QualityLoss(HeadLoss):
    """Base of the point-wise losses.

    It keeps no state and leaves the scores as they are at test time. ``n_pos`` counts the positives
    of all ranks, or adds up their weights, exactly as in a single process. Without a positive it is
    1, and the loss is proportional to the weights.

    Args:
        gamma: Exponent of the loss, >= 0.
        use_iou: Whether the quality of a positive is the IoU of its box. False: 1 for all, and no
            head has to pass boxes.
    """

    box_input = 'quality'
    takes_logits = True  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]  # always
    no_retrieval = 'scores the boxes of a detector'

    def __init__(self, gamma: float, use_iou: bool = True, **kwargs) -> None:
        super().__init__(**kwargs)
        check_not_negative(gamma=gamma)
        self.gamma = gamma
        if not use_iou:
            self.box_input = None

    def positives(self, p: Tensor, quality: Tensor) -> tuple[Tensor | float, Tensor]:
        """Weights and targets of positives of probabilities and qualities in [0, 1]."""
        raise NotImplementedError

    def negatives(self, p: Tensor) -> Tensor:
        """Weights of negatives of probabilities in [0, 1]."""
        return power(p.detach(), self.gamma)

    def loss_of_lists(
        self, scores, is_positive, is_negative, values=None, group=None, weight=None, **_
    ) -> Tensor:
        """The loss of all scores: they do not meet, in whatever list they are."""
        if group is not None:
            refuse_nan('group', group, 'give each score the number of its list')
        group = joined_group(self)
        if group is not None:
            scores = scale_gradient(scores, group.size())
        scores = _FirstOrder.apply(clamp_infinite(scores))  # the slopes would be 0 * inf
        index, pos_mask = positive_index(is_positive, math.inf, can_sync(is_positive))
        # A score that does not count has no gradient, not even if it is NaN.
        neg = at_least_float32(torch.where(is_negative, scores, 0))
        pos = at_least_float32(torch.where(pos_mask, scores.gather(1, index), 0))
        quality = torch.ones_like(pos)
        if values is not None:
            values = values_at(values.detach(), index, scores.size(1))
            quality = torch.where(pos_mask, values, quality)
        factor, target = self.positives(pos.sigmoid(), quality)
        above = factor * binary_cross_entropy_with_logits(pos, target, reduction='none')
        below = -logsigmoid(-neg) * self.negatives(neg.sigmoid())
        if weight is None:
            counts = is_positive
            above = torch.where(pos_mask, above, 0)
            below = torch.where(is_negative, below, 0)
        else:
            counts = torch.where(pos_mask, weight.gather(1, index), 0)
            above = above * counts.to(above)
            below = below * torch.where(is_negative, weight, 0).to(below)
        loss = above.sum() + below.sum()
        sums = torch.stack([loss.double(), counts.sum(dtype=torch.float64)])
        total, number = all_reduce_sum(sums, group)
        number = number.detach()
        self.diagnostics = {'num_positive': number}
        return (total / as_divisor(number)).to(loss.dtype)


class VarifocalLoss(QualityLoss):
    """Varifocal loss in the form of RT-DETR, which trains on it.

    Positives: weight q, target q. Negatives: weight ``alpha * p^gamma``, a constant. Source: Zhang
    et al., VarifocalNet, CVPR 2021; Zhao et al., RT-DETR, CVPR 2024. ``use_iou=False`` gives
    positives weight and target 1.

    Args:
        alpha: Weight of the negatives, >= 0.
        gamma: Exponent of a negative's probability, >= 0.

    Example:
        >>> loss = VarifocalLoss()
        >>> loss(torch.zeros(2), torch.tensor([1, 0]), quality=torch.tensor([0.5]))
        tensor(0.4765)
    """

    def __init__(self, alpha: float = 0.75, gamma: float = 2.0, **kwargs) -> None:
        super().__init__(gamma, **kwargs)
        check_not_negative(alpha=alpha)
        self.alpha = alpha

    def positives(self, p: Tensor, quality: Tensor) -> tuple[Tensor, Tensor]:
        return quality, quality

    def negatives(self, p: Tensor) -> Tensor:
        return self.alpha * super().negatives(p)


class MALLoss(QualityLoss):
    """Matchability-aware loss of DEIM.

    Positives: weight 1, target ``q^gamma``. Negatives: weight ``p^gamma``, a constant. Source:
    Huang et al., DEIM, CVPR 2025, ``loss_labels_mal``.

    Args:
        gamma: Exponent of quality and probability, >= 0.
    """

    def __init__(self, gamma: float = 1.5, **kwargs) -> None:
        super().__init__(gamma, **kwargs)

    def positives(self, p: Tensor, quality: Tensor) -> tuple[float, Tensor]:
        return 1.0, quality**self.gamma


class IABCELoss(QualityLoss):
    """IoU-aware cross-entropy of Align-DETR, LW-DETR and RF-DETR.

    Positives: weight 1, target ``t = max(p^alpha * q^(1 - alpha), 0.01)``, a constant. Negatives:
    weight ``p^gamma``, through which the gradient goes. Source: Cai et al., Align-DETR, BMVC 2024
    (without the ranks of its many-to-one matching); Chen et al., LW-DETR, 2024.

    Args:
        alpha: Exponent of the probability in the target, in [0, 1].
        gamma: Exponent of a negative's probability, >= 0.
    """

    def __init__(self, alpha: float = 0.25, gamma: float = 2.0, **kwargs) -> None:
        super().__init__(gamma, **kwargs)
        check_within('[0, 1]', alpha=alpha)
        self.alpha = alpha

    def positives(self, p: Tensor, quality: Tensor) -> tuple[float, Tensor]:
        target = p.detach() ** self.alpha * quality ** (1 - self.alpha)
        return 1.0, target.clamp(min=0.01)

    def negatives(self, p: Tensor) -> Tensor:
        return power(p, self.gamma)


class QualityFocalLoss(QualityLoss):
    """Quality focal loss, and focal loss itself.

    Positives: weight ``|q - p|^gamma``, target q. Negatives: weight ``p^gamma``. The gradient goes
    through both. Source: Li et al., Generalized Focal Loss, NeurIPS 2020; its beta is gamma here.
    ``use_iou=False, alpha=0.25`` is focal loss (Lin et al., ICCV 2017, eq. 5).

    Args:
        gamma: Exponent of the distance to the target, >= 0.
        alpha: Weight of the positives, in [0, 1]; the negatives have ``1 - alpha``. None: 1 for
            both.
    """

    def __init__(self, gamma: float = 2.0, alpha: float | None = None, **kwargs) -> None:
        super().__init__(gamma, **kwargs)
        self.sides = (1.0, 1.0)
        if alpha is not None:
            check_within('[0, 1]', alpha=alpha)
            self.sides = (alpha, 1 - alpha)

    def positives(self, p: Tensor, quality: Tensor) -> tuple[Tensor, Tensor]:
        return self.sides[0] * power((quality - p).abs(), self.gamma), quality

    def negatives(self, p: Tensor) -> Tensor:
        return self.sides[1] * power(p, self.gamma)
