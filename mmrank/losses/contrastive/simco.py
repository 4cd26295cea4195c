"""SimCo: one temperature in an anchor, and one across anchors."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from mmrank.settings import check_positive

from .base import ContrastedBatch, ContrastiveLoss
from .info_nce import log_sum_of_negatives


class SimCoLoss(ContrastiveLoss):
    """Contrastive loss with one temperature in and one across anchors.

    ``-sg[W_b / W_a] log p_a`` with the softmax probability ``p`` of the positive and ``W = 1 - p``,
    at a small temperature a and a large one b: the small one weighs the negatives of an anchor
    against each other, the large one the anchors. With both equal it is InfoNCE. Source: Zhang et
    al., Dual Temperature Helps Contrastive Learning Without Many Negative Samples, CVPR 2022, whose
    large temperature is 1.

    Args:
        tau: Temperature > 0 within an anchor, weighs its negatives; the paper's is 0.1.
        bimodal: Contrast each view with the other one of all other samples, as SimCo does it; else
            with both views of them.
    """

    tau_inter = 1.0

    def __init__(self, tau: float = 0.1, bimodal: bool = True, **kwargs) -> None:
        super().__init__(**kwargs)
        check_positive(tau=tau)
        self.tau = float(tau)
        self.bimodal = bimodal

    def row_losses(self, batch: ContrastedBatch) -> Tensor:
        with torch.no_grad():
            smooth = batch.terms(self.tau_inter, self.bimodal)
        sharp = self.terms(batch, self.tau, self.bimodal)
        log_sum = log_sum_of_negatives(sharp)
        fixed = log_sum.detach()
        # W_b / W_a alone overflows for an anchor that is far from its negatives, but W_a cancels in
        # the gradient: what is left is W_b times the softmax over the negatives. -log p_a / W_a
        # tends to 1 where both vanish.
        is_tiny = fixed < -50
        safe = torch.where(is_tiny, 0, fixed)
        ratio = torch.where(is_tiny, 1, softplus(safe) / safe.sigmoid())
        losses = log_sum_of_negatives(smooth).sigmoid() * (ratio + (log_sum - fixed))
        return torch.where(sharp.count > 0, losses, log_sum * 0).mean(0)
