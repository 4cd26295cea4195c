"""Class-balanced cross-entropy: classes weighted by their effective number of samples."""

import math

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from mmrank.settings import check_within

from .base import ClassCountLoss, Counts


def effective_number_weights(counts: Tensor, beta: float) -> Tensor:
    """Class weights by the effective number of samples, float64; 0 for a class without samples.

    ``w_c = (1 - beta) / (1 - beta^n_c)``, scaled so that the classes that have samples weigh 1 on
    average: 0 gives equal weights, and towards 1 they tend to 1/n. Source: Cui et al.,
    Class-Balanced Loss Based on Effective Number of Samples, CVPR 2019, eq. 4 and 5. ``counts`` are
    (..., K) samples of the K classes that compete, ``beta`` is in [0, 1).
    """
    counts = counts.double()
    exists = counts > 0
    log_beta = math.log(beta) if beta > 0 else -math.inf
    # By expm1: 1 - beta^n cancels for beta near 1.
    number = -torch.expm1(counts.clamp(min=1) * log_beta)
    weights = torch.where(exists, number.reciprocal(), 0)
    mean = weights.sum(-1, keepdim=True) / exists.sum(-1, keepdim=True)
    return torch.where(exists, weights / mean, 0)


class ClassBalancedCELoss(ClassCountLoss):
    """Cross-entropy weighted by the effective number of samples.

    The weights are 1 on average over the classes that compete, and the mean is over the rows.
    Source: Cui et al., Class-Balanced Loss Based on Effective Number of Samples, CVPR 2019. Their
    sigmoid form weights all columns of a sample by its one class; here every column is a binary
    problem, which also serves samples of several classes or of none.

    Args:
        class_counts: See :class:`ClassCountLoss`.
        beta: In [0, 1): 0 is plain cross-entropy, towards 1 the weights tend to 1/n. The paper
            compares 0.9, 0.99, 0.999 and 0.9999.
    """

    def __init__(self, class_counts: Counts | None = None, beta: float = 0.9999, **kwargs) -> None:
        super().__init__(class_counts, **kwargs)
        check_within('[0, 1)', beta=beta)
        self.beta = beta

    def sigmoid_losses(self, scores: Tensor, is_positive: Tensor) -> tuple[Tensor, Tensor]:
        weights = effective_number_weights(self.counts.get(), self.beta)
        neg, pos = weights.to(scores).unbind(1)
        targets = is_positive.to(scores.dtype)
        losses = binary_cross_entropy_with_logits(scores, targets, reduction='none')
        return losses * torch.where(is_positive, pos, neg), losses.new_ones(len(losses), 1)

    def softmax_losses(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        weights = effective_number_weights(self.counts.get()[:, 1], self.beta)
        losses = cross_entropy(scores, labels, weights.to(scores), reduction='none')
        return losses, torch.ones_like(losses)
