"""Class-balanced cross-entropy as a registered loss."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from mmrank.losses.long_tail.class_balance import effective_number_weights

from .class_count_loss import ClassCountLoss


class ClassBalancedCELoss(ClassCountLoss):
    """Cross-entropy weighted by the effective number of samples.

    The weights are 1 on average over the classes that compete, and the mean
    is over the rows. Source: Cui et al., Class-Balanced Loss Based on Effective Number of Samples,
    CVPR 2019. Their sigmoid form weights all columns of a sample by its one class; here every
    column is a binary problem, which also serves samples of several classes or of none.

    Args:
        num_classes: Number of classes C, columns of the scores.
        beta: In [0, 1): 0 is plain cross-entropy, towards 1 the weights tend to 1/n. The paper
            compares 0.9, 0.99, 0.999 and 0.9999.
        **kwargs: ``use_sigmoid``, ``class_counts``, ``num_samples``,
            ``scope`` and ``loss_weight`` of
            :class:`mmrank.losses.ClassCountLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(self, num_classes: int, beta: float = 0.9999, **kwargs) -> None:
        super().__init__(num_classes, **kwargs)
        effective_number_weights(torch.ones(2), beta)  # refuses a bad beta
        self.beta = beta

    def sigmoid_losses(self, scores: Tensor, is_positive: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted binary cross-entropy, every row counting 1."""
        weights = effective_number_weights(self.counts.get(), self.beta)
        neg, pos = weights.to(scores).unbind(1)
        losses = binary_cross_entropy_with_logits(
            scores, is_positive.to(scores.dtype), reduction='none'
        )
        losses = losses * torch.where(is_positive, pos, neg)
        return losses, torch.ones_like(losses)

    def softmax_losses(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted cross-entropy, every row counting 1."""
        weights = effective_number_weights(self.counts.get()[:, 1], self.beta)
        losses = cross_entropy(scores, labels, weights.to(scores), reduction='none')
        return losses, torch.ones_like(losses)
