"""Weights and margins by class counts; cross-entropy with margins (LDAM)."""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus


def ldam_softmax(scores: Tensor, labels: Tensor, margins: Tensor, scale: float = 30.0) -> Tensor:
    """LDAM loss of samples with one class each.

    Cross-entropy of ``scale * (scores - margin of the own class)``. Source: Cao et al., Learning
    Imbalanced Datasets with Label-Distribution-Aware Margin Loss, NeurIPS 2019, eq. 12.

    Args:
        scores: (n, C) floats.
        labels: (n,) int64 classes in ``[0, C)``.
        margins: (C,) margins, see :func:`ldam_margins`.
        scale: Factor of the scores, > 0.

    Returns:
        (n,) losses >= 0, in the dtype of the scores.
    """
    own = torch.zeros_like(scores).scatter_(1, labels[:, None], margins.to(scores)[labels][:, None])
    return cross_entropy(scale * (scores - own), labels, reduction='none')


def ldam_sigmoid(
    scores: Tensor, is_positive: Tensor, margins: Tensor, scale: float = 30.0
) -> Tensor:
    """LDAM loss of binary problems, one a column.

    A score s is that of the positive class over the negative one, so this is
    :func:`ldam_softmax` of the scores (0, s).

    Args:
        scores: (n, C) floats.
        is_positive: (n, C) bool.
        margins: (C, 2) margins of the negatives and of the positives.
        scale: Factor of the scores, > 0.

    Returns:
        (n, C) losses >= 0, in the dtype of the scores.
    """
    neg, pos = margins.to(scores).unbind(1)
    lead = torch.where(is_positive, scores - pos, -scores - neg)
    return softplus(-scale * lead)


def effective_number_weights(counts: Tensor, beta: float) -> Tensor:
    """Class weights by the effective number of samples.

    ``w_c = (1 - beta) / (1 - beta^n_c)``, scaled so that the classes that
    have samples weigh 1 on average: 0 gives equal weights, and towards 1 they tend to 1/n. Source:
    Cui et al., Class-Balanced Loss Based on Effective Number of Samples, CVPR 2019, eq. 4 and 5.

    Args:
        counts: (..., K) numbers >= 0, samples of the K classes that compete.
        beta: In [0, 1).

    Returns:
        (..., K) float64 >= 0; 0 for a class without samples.

    Raises:
        ValueError: If ``beta`` is out of range.

    Example:
        >>> effective_number_weights(torch.tensor([900, 100]), 0.999)
        tensor([0.2764, 1.7236], dtype=torch.float64)
    """
    if not 0 <= beta < 1:
        raise ValueError(f'beta must be in [0, 1), got {beta!r}')
    counts = counts.double()
    exists = counts > 0
    log_beta = math.log(beta) if beta > 0 else -math.inf
    # By expm1: 1 - beta^n cancels for beta near 1.
    number = -torch.expm1(counts.clamp(min=1) * log_beta)
    weights = torch.where(exists, number.reciprocal(), 0)
    mean = weights.sum(-1, keepdim=True) / exists.sum(-1, keepdim=True)
    return torch.where(exists, weights / mean, 0)


def ldam_margins(counts: Tensor, max_margin: float = 0.5) -> Tensor:
    """Label-distribution-aware margins.

    ``n_c^(-1/4)``, scaled so that the rarest class has ``max_margin``.
    Source: Cao et al., Learning Imbalanced Datasets with Label-Distribution- Aware Margin Loss,
    NeurIPS 2019, eq. 13.

    Args:
        counts: (..., K) numbers >= 0, samples of the K classes that compete.
        max_margin: Largest margin, >= 0.

    Returns:
        (..., K) float64 in ``[0, max_margin]``; ``max_margin`` for a class without samples.

    Raises:
        ValueError: If ``max_margin`` is negative.

    Example:
        >>> ldam_margins(torch.tensor([1600, 100]))
        tensor([0.2500, 0.5000], dtype=torch.float64)
    """
    if not max_margin >= 0:
        raise ValueError(f'max_margin must be >= 0, got {max_margin!r}')
    counts = counts.double()
    rarest = torch.where(counts > 0, counts, torch.inf).amin(-1, keepdim=True)
    ratio = rarest / torch.where(counts > 0, counts, rarest)
    # Without any sample inf/inf: no margin is better than NaN.
    return max_margin * ratio.nan_to_num(0).pow(0.25)
