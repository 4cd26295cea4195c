"""InfoNCE loss, with one temperature or two."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from .negative_terms import NegativeTerms, two_view_terms


def log_sum_of_negatives(terms: NegativeTerms) -> Tensor:
    """``log sum_z exp(h(z)/tau)`` of each anchor; 0 if it has no negatives.

    Its sigmoid is the softmax probability of all negatives together.

    Args:
        terms: See :func:`mmrank.functional.negative_terms`.

    Returns:
        (n,), differentiable.
    """
    log_sum = terms.log_mean + terms.count.clamp(min=1).log()
    return torch.where(terms.count > 0, log_sum, 0)


def info_nce_losses(terms: NegativeTerms, positive_in_denominator: bool = True) -> Tensor:
    """InfoNCE of each anchor.

    ``-log exp(<a, a+>/tau) / (exp(<a, a+>/tau) + sum_z exp(<a, z>/tau))``.
    Source: van den Oord et al., Representation Learning with Contrastive Predictive Coding, 2018;
    SimCLR (ICML 2020), eq. 1.

    Args:
        terms: See :func:`mmrank.functional.negative_terms`.
        positive_in_denominator: False leaves the positive out of the denominator, as in iSogCLR
            (ICML 2023), eq. 1.

    Returns:
        (n,) losses, 0 for an anchor without negatives.
    """
    has_negatives = terms.count > 0
    log_sum = log_sum_of_negatives(terms)
    if positive_in_denominator:
        log_sum = torch.logaddexp(log_sum, torch.zeros_like(log_sum))
    return torch.where(has_negatives, log_sum, log_sum * 0)


def info_nce_loss(
    view1: Tensor,
    view2: Tensor,
    tau: Tensor | float,
    sample_ids: Tensor | None = None,
    positive_in_denominator: bool = True,
) -> Tensor:
    """InfoNCE of a batch of two views, as SimCLR trains it.

    Args:
        view1: (B, D) embeddings; of length 1 for cosines.
        view2: (B, D) embeddings of the same samples.
        tau: Temperature > 0.
        sample_ids: (B,) integer sample of each row; rows of one sample are
            no negatives of each other. None: all rows differ.
        positive_in_denominator: See :func:`info_nce_losses`.

    Returns:
        Scalar mean over the 2B anchors.

    Example:
        >>> view = torch.eye(2)
        >>> round(float(info_nce_loss(view, view, tau=0.5)), 4)
        0.2395
    """
    terms = two_view_terms(view1, view2, tau, sample_ids)
    losses = info_nce_losses(terms, positive_in_denominator)
    return losses.sum() / max(losses.numel(), 1)


def dual_temperature_losses(sharp: NegativeTerms, smooth: NegativeTerms) -> Tensor:
    """Dual temperature loss of each anchor, as SimCo trains it.

    ``-sg[W_b / W_a] log p_a`` with the softmax probability ``p`` of the positive and ``W = 1 - p``,
    at a small temperature a and a large one b:
    the small one weighs the negatives of an anchor against each other, the large one the anchors.
    Source: Zhang et al., Dual Temperature Helps Contrastive Learning Without Many Negative Samples,
    CVPR 2022.

    ``W_b / W_a`` alone overflows for an anchor that is far from its
    negatives, but ``W_a`` cancels in the gradient: what is left is ``W_b`` times the softmax over
    the negatives.

    Args:
        sharp: Terms at the small temperature, see
            :func:`mmrank.functional.negative_terms`.
        smooth: Terms of the same anchors at the large one; no gradient goes into them.

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
