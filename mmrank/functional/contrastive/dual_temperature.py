"""Contrastive loss with two temperatures."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from .info_nce import log_sum_of_negatives
from .negative_terms import NegativeTerms


def dual_temperature_losses(
    sharp: NegativeTerms, smooth: NegativeTerms
) -> Tensor:
    """Dual temperature loss of each anchor, as SimCo trains it.

    ``-sg[W_b / W_a] log p_a`` with the softmax probability ``p`` of the
    positive and ``W = 1 - p``, at a small temperature a and a large one b:
    the small one weighs the negatives of an anchor against each other, the
    large one the anchors. Source: Zhang et al., Dual Temperature Helps
    Contrastive Learning Without Many Negative Samples, CVPR 2022.

    ``W_b / W_a`` alone overflows for an anchor that is far from its
    negatives, but ``W_a`` cancels in the gradient: what is left is ``W_b``
    times the softmax over the negatives.

    Args:
        sharp: Terms at the small temperature, see
            :func:`mmrank.functional.negative_terms`.
        smooth: Terms of the same anchors at the large one; no gradient goes
            into them.

    Returns:
        (n,) losses, 0 for an anchor without negatives.
    """
    has_negatives = sharp.count > 0
    log_sum = log_sum_of_negatives(sharp)
    weight = log_sum_of_negatives(smooth).detach().sigmoid()
    fixed = log_sum.detach()
    # -log p / W, which tends to 1 where both vanish.
    tiny = fixed < -50
    safe = torch.where(tiny, 0, fixed)
    ratio = torch.where(tiny, 1, softplus(safe) / safe.sigmoid())
    loss = weight * (ratio + (log_sum - fixed))
    return torch.where(has_negatives, loss, log_sum * 0)
