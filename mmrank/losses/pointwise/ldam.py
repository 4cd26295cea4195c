"""LDAM: cross-entropy with larger margins for rarer classes, and deferred re-weighting."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from mmrank.checks import check_not_negative, check_positive
from mmrank.losses.options import ClassCountOptions, Unpack

from .base import ClassCountLoss
from .class_balanced_ce import effective_number_weights


def ldam_margins(counts: Tensor, max_margin: float = 0.5) -> Tensor:
    """Label-distribution-aware margins of (..., K) counts, float64 in ``[0, max_margin]``.

    ``n_c^(-1/4)``, scaled so that the rarest class, and one without samples, has ``max_margin``.
    Source: Cao et al., Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss,
    NeurIPS 2019, eq. 13.
    """
    check_not_negative(max_margin=max_margin)
    counts = counts.double()
    rarest = torch.where(counts > 0, counts, torch.inf).amin(-1, keepdim=True)
    ratio = rarest / torch.where(counts > 0, counts, rarest)
    # Without any sample inf/inf: no margin is better than NaN.
    return max_margin * ratio.nan_to_num(0).pow(0.25)


def ldam_softmax(scores: Tensor, labels: Tensor, margins: Tensor, scale: float = 30.0) -> Tensor:
    """(n,) LDAM losses of (n, C) scores with (n,) int64 classes and (C,) margins.

    Cross-entropy of ``scale * (scores - margin of the own class)``. Source: Cao et al., Learning
    Imbalanced Datasets with Label-Distribution-Aware Margin Loss, NeurIPS 2019, eq. 12.
    """
    own = torch.zeros_like(scores).scatter_(1, labels[:, None], margins.to(scores)[labels][:, None])
    return cross_entropy(scale * (scores - own), labels, reduction='none')


def ldam_sigmoid(
    scores: Tensor, is_positive: Tensor, margins: Tensor, scale: float = 30.0
) -> Tensor:
    """(n, C) LDAM losses of binary problems, one a column, with (C, 2) margins.

    A score s is the positive class's score over the negative one, so this is :func:`ldam_softmax`
    of the scores (0, s). The margins are for the negatives and for the positives.
    """
    neg, pos = margins.to(scores).unbind(1)
    lead = torch.where(is_positive, scores - pos, -scores - neg)
    return softplus(-scale * lead)


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
        **kwargs: See :class:`ClassCountLoss`.

    Attributes:
        reweighting: () float32 buffer, 1 from the start of the re-weighting on.
    """

    reweighting: Tensor

    def __init__(
        self,
        num_classes: int,
        max_margin: float = 0.5,
        scale: float = 30.0,
        reweight_beta: float = 0.9999,
        **kwargs: Unpack[ClassCountOptions],
    ) -> None:
        super().__init__(num_classes, **kwargs)
        check_positive(scale=scale)
        # Refuse bad settings before training starts.
        ldam_margins(torch.ones(2), max_margin)
        effective_number_weights(torch.ones(2), reweight_beta)
        self.max_margin = max_margin
        self.scale = scale
        self.reweight_beta = reweight_beta
        self.register_buffer('reweighting', torch.zeros((), dtype=torch.float32))

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
