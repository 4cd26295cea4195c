"""LDAM: cross-entropy with larger margins for rarer classes, and deferred re-weighting."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from mmrank.settings import check_not_negative, check_positive, check_within

from .base import ClassCountLoss, Counts
from .class_balanced_ce import effective_number_weights


def _ldam_margins(counts: Tensor, max_margin: float) -> Tensor:
    """Label-distribution-aware margins of (..., K) counts, float64 in ``[0, max_margin]``.

    ``n_c^(-1/4)``, scaled so that the rarest class, and one without samples, has ``max_margin``.
    Source: Cao et al., NeurIPS 2019, eq. 13.
    """
    counts = counts.double()
    rarest = torch.where(counts > 0, counts, torch.inf).amin(-1, keepdim=True)
    ratio = rarest / torch.where(counts > 0, counts, rarest)
    # Without any sample inf/inf: no margin is better than NaN.
    return max_margin * ratio.nan_to_num(0).pow(0.25)


class LDAMLoss(ClassCountLoss):
    """Cross-entropy with larger margins for rarer classes.

    Cross-entropy of ``scale * (scores - margin of the own class)`` with the margin ``max_margin *
    (n_rarest / n_c)^(1/4)``; with sigmoid that of two classes with the scores 0 and s. Once
    ``mmrank.DeferredReweightingHook`` starts the re-weighting, the classes are also weighted by
    their effective number and the mean is weighted, as in the authors' code. Source: Cao et al.,
    Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, NeurIPS 2019, eq. 12.

    Args:
        class_counts: See :class:`ClassCountLoss`.
        max_margin: Margin of the rarest class, >= 0.
        scale: Factor of the scores, > 0. The paper's 30 is for cosines, with weights and features
            of length 1; take 1 for free scores.
        reweight_beta: beta of the deferred weights, in [0, 1).

    Attributes:
        reweighting: () int64 buffer, 1 from the start of the re-weighting on.
    """

    reweighting: Tensor

    def __init__(
        self,
        class_counts: Counts | None = None,
        max_margin: float = 0.5,
        scale: float = 30.0,
        reweight_beta: float = 0.9999,
        **kwargs,
    ) -> None:
        super().__init__(class_counts, **kwargs)
        check_not_negative(max_margin=max_margin)
        check_positive(scale=scale)
        check_within('[0, 1)', reweight_beta=reweight_beta)
        self.max_margin = max_margin
        self.scale = scale
        self.reweight_beta = reweight_beta
        self.register_buffer('reweighting', torch.zeros((), dtype=torch.long))

    def start_reweighting(self) -> None:
        self.reweighting.fill_(1)

    def sigmoid_losses(self, scores: Tensor, is_positive: Tensor) -> tuple[Tensor, Tensor]:
        margins, weights = self._of_classes(self.counts.get(), scores)
        lead = torch.where(is_positive, scores - margins[:, 1], -scores - margins[:, 0])
        weights = torch.where(is_positive, weights[:, 1], weights[:, 0])
        return softplus(-self.scale * lead) * weights, weights

    def softmax_losses(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        margins, weights = self._of_classes(self.counts.get()[:, 1], scores)
        own = torch.zeros_like(scores).scatter_(1, labels[:, None], margins[labels][:, None])
        losses = cross_entropy(self.scale * (scores - own), labels, reduction='none')
        weights = weights[labels]
        return losses * weights, weights

    def _of_classes(self, counts: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Margins and weights of (..., K) counts, in the dtype of the scores."""
        weights = effective_number_weights(counts, self.reweight_beta)
        weights = torch.where(self.reweighting > 0, weights, 1)
        return _ldam_margins(counts, self.max_margin).to(scores), weights.to(scores)
