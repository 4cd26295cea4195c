"""LDAM with deferred re-weighting as a registered loss."""

import torch
from torch import Tensor

from mmrank.losses.long_tail.class_balance import (
    effective_number_weights,
    ldam_margins,
    ldam_sigmoid,
    ldam_softmax,
)

from .class_count_loss import ClassCountLoss


class LDAMLoss(ClassCountLoss):
    """Cross-entropy with larger margins for rarer classes.

    The margin of a class is ``max_margin * (n_rarest / n_c)^(1/4)``. Once
    ``mmrank.DeferredReweightingHook`` starts the re-weighting, the classes are also weighted by
    their effective number and the mean is weighted, as in the authors' code. Source: Cao et al.,
    Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, NeurIPS 2019.

    Args:
        num_classes: Number of classes C, columns of the scores.
        max_margin: Margin of the rarest class, >= 0.
        scale: Factor of the scores, > 0. The paper's 30 is for cosines, with weights and features
            of length 1; take 1 for free scores.
        reweight_beta: beta of the deferred weights, in [0, 1).
        **kwargs: ``use_sigmoid``, ``class_counts``, ``num_samples``,
            ``scope`` and ``loss_weight`` of
            :class:`mmrank.losses.ClassCountLoss`.

    Attributes:
        reweighting: () float32 buffer, 1 from the start of the re-weighting on; saved, so that a
            resumed run continues with it.

    Raises:
        ValueError: On a parameter out of range.
    """

    reweighting: Tensor

    def __init__(
        self,
        num_classes: int,
        max_margin: float = 0.5,
        scale: float = 30.0,
        reweight_beta: float = 0.9999,
        **kwargs,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        if not scale > 0:
            raise ValueError(f'scale must be > 0, got {scale!r}')
        # Refuse bad settings before training starts.
        ldam_margins(torch.ones(2), max_margin)
        effective_number_weights(torch.ones(2), reweight_beta)
        self.max_margin, self.scale = max_margin, scale
        self.reweight_beta = reweight_beta
        self.register_buffer('reweighting', torch.zeros(()))

    def start_reweighting(self) -> None:
        """Weight the classes from now on."""
        self.reweighting.fill_(1)

    def sigmoid_losses(self, scores: Tensor, is_positive: Tensor) -> tuple[Tensor, Tensor]:
        """Binary LDAM losses and their weights."""
        counts = self.counts.get()
        margins = ldam_margins(counts, self.max_margin)
        losses = ldam_sigmoid(scores, is_positive, margins, self.scale)
        neg, pos = self._weights(counts).to(losses).unbind(1)
        weights = torch.where(is_positive, pos, neg)
        return losses * weights, weights

    def softmax_losses(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """LDAM losses and the weights of their classes."""
        counts = self.counts.get()[:, 1]
        margins = ldam_margins(counts, self.max_margin)
        losses = ldam_softmax(scores, labels, margins, self.scale)
        weights = self._weights(counts).to(losses)[labels]
        return losses * weights, weights

    def _weights(self, counts: Tensor) -> Tensor:
        weights = effective_number_weights(counts, self.reweight_beta)
        return torch.where(self.reweighting > 0, weights, 1)
