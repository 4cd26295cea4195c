"""Cross-entropy with a margin by class."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus


def ldam_softmax(
    scores: Tensor, labels: Tensor, margins: Tensor, scale: float = 30.0
) -> Tensor:
    """LDAM loss of samples with one class each.

    Cross-entropy of ``scale * (scores - margin of the own class)``. Source:
    Cao et al., Learning Imbalanced Datasets with Label-Distribution-Aware
    Margin Loss, NeurIPS 2019, eq. 12.

    Args:
        scores: (n, C) floats.
        labels: (n,) int64 classes in ``[0, C)``.
        margins: (C,) margins, see :func:`ldam_margins`.
        scale: Factor of the scores, > 0.

    Returns:
        (n,) losses >= 0, in the dtype of the scores.
    """
    own = torch.zeros_like(scores).scatter_(
        1, labels[:, None], margins.to(scores)[labels][:, None]
    )
    return cross_entropy(scale * (scores - own), labels, reduction='none')


def ldam_sigmoid(
    scores: Tensor,
    is_positive: Tensor,
    margins: Tensor,
    scale: float = 30.0,
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
