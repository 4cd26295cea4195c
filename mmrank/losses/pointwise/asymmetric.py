"""Asymmetric loss: negatives are focused more than positives, and easy ones left out."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from mmrank.settings import check_not_negative, check_within
from mmrank.tensors import clamp_infinite

from .base import PointwiseLoss


class AsymmetricLoss(PointwiseLoss):
    """Focal loss with an exponent for each side, and no loss of easy negatives.

    With p = sigmoid(s) and ``q = max(p - clip, 0)`` a positive has ``-(1 - p)^gamma_pos log p`` and
    a negative ``-q^gamma_neg log(1 - q)``, through all of which the gradient goes. The sum over the
    classes is averaged over the rows; the authors sum over the rows, too. Source: Ridnik et al.,
    Asymmetric Loss For Multi-Label Classification, ICCV 2021, eq. 7.

    Args:
        num_classes: Number of classes C, checked against the scores.
        gamma_neg: Exponent of the negatives, >= 0.
        gamma_pos: Exponent of the positives, >= 0.
        clip: Probability up to which a negative has no loss, in [0, 1).
    """

    def __init__(
        self,
        num_classes: int | None = None,
        gamma_neg: float = 4.0,
        gamma_pos: float = 0.0,
        clip: float = 0.05,
        **kwargs,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        check_not_negative(gamma_neg=gamma_neg, gamma_pos=gamma_pos)
        check_within('[0, 1)', clip=clip)
        self.gamma_neg = gamma_neg
        self.gamma_pos = gamma_pos
        self.clip = clip

    def sigmoid_losses(self, scores: Tensor, is_positive: Tensor) -> tuple[Tensor, Tensor]:
        scores = clamp_infinite(scores)  # the slopes of both factors would be 0 * inf
        above = -_power(scores.neg().sigmoid(), self.gamma_pos) * logsigmoid(scores)
        kept = scores.neg().sigmoid() + self.clip
        # By logsigmoid where nothing is clipped: 1 - p rounds to 0.
        rest = kept.clamp(max=1).log() if self.clip > 0 else logsigmoid(-scores)
        below = -_power(scores.sigmoid() - self.clip, self.gamma_neg) * rest
        losses = torch.where(is_positive, above, below)
        return losses, losses.new_ones(len(losses), 1)


def _power(x: Tensor, gamma: float) -> Tensor:
    """``max(x, 0)^gamma``, whose slope at 0 is finite for every gamma."""
    return x.clamp(min=1e-30) ** gamma
