"""Cross-entropy of scores shifted by the log shares of the classes, and balanced softmax."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from mmrank.settings import check_not_negative

from .base import ClassCountLoss, Counts


def _log_shares(counts: Tensor, tau: float) -> Tensor:
    """``log(pi^tau + 1e-12)`` of (..., K) counts of competing classes, float64.

    pi is the share of a class among its K; 1e-12 keeps a class without samples finite, as in the
    authors' code. Source: Menon et al., Long-tail Learning via Logit Adjustment, ICLR 2021, eq. 10.
    """
    counts = counts.double()
    shares = counts / counts.sum(-1, keepdim=True).clamp(min=1)
    return (shares**tau + 1e-12).log()


class LogitAdjustedCELoss(ClassCountLoss):
    """Cross-entropy of the scores plus tau times the log shares of the classes.

    A rare class needs a higher score to be as probable in training; at test time the scores have
    no shift, so that every class counts alike. With softmax it is the authors' loss. With sigmoid
    each column is that loss of two classes with the scores 0 and s: the shift is the log odds of
    the class against the rest. Source: Menon et al., Long-tail Learning via Logit Adjustment, ICLR
    2021, eq. 10.

    Args:
        class_counts: See :class:`ClassCountLoss`.
        tau: Factor of the shift, >= 0; 0 is plain cross-entropy.
    """

    def __init__(self, class_counts: Counts | None = None, tau: float = 1.0, **kwargs) -> None:
        super().__init__(class_counts, **kwargs)
        check_not_negative(tau=tau)
        self.tau = tau

    def sigmoid_losses(self, scores: Tensor, is_positive: Tensor) -> tuple[Tensor, Tensor]:
        neg, pos = _log_shares(self.counts.get(), self.tau).unbind(1)
        scores = scores + (pos - neg).to(scores)
        targets = is_positive.to(scores.dtype)
        losses = binary_cross_entropy_with_logits(scores, targets, reduction='none')
        return losses, losses.new_ones(len(losses), 1)

    def softmax_losses(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        shift = _log_shares(self.counts.get()[:, 1], self.tau)
        losses = cross_entropy(scores + shift.to(scores), labels, reduction='none')
        return losses, torch.ones_like(losses)


class BalancedSoftmaxLoss(LogitAdjustedCELoss):
    """Cross-entropy of a softmax whose terms count as often as their classes have samples.

    It equals :class:`LogitAdjustedCELoss` with softmax and ``tau=1``. Source: Ren et al., Balanced
    Meta-Softmax for Long-Tailed Visual Recognition, NeurIPS 2020, eq. 3.

    Args:
        class_counts: See :class:`ClassCountLoss`.
    """

    fixed_settings = ('tau', 'use_sigmoid')

    def __init__(self, class_counts: Counts | None = None, **kwargs) -> None:
        super().__init__(class_counts, use_sigmoid=False, **kwargs)
