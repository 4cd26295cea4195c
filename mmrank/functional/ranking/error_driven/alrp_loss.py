"""Average localisation-recall-precision (aLRP) loss."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmrank.functional.ranking.lists import ranking_function, score_lists, split_targets

from .update import error_driven_loss, rank_counts

# Number of false positives below which the paper makes no update.
_EPS = 1e-5


class ALRP(NamedTuple):
    """The two parts of aLRP; their sum is the loss.

    Attributes:
        classification: Mean ``N_FP(i) / rank(i)``. Carries the whole gradient of the scores.
        localisation: Mean ranking-weighted box error. Carries the gradient
            of the box errors.
    """

    classification: Tensor
    localisation: Tensor


@ranking_function(of_positives=['box_errors'])
def error_driven_alrp(
    pos: Tensor,
    neg: Tensor,
    box_errors: Tensor,
    *,
    delta: float = 1.0,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    method: str = 'auto',
    group=None,
) -> ALRP:
    """ALRP of positives and negatives.

    ``mean_i (N_FP(i) + E_i + sum_{k != i} E_k H(s_k - s_i)) / rank(i)``.
    Source: aLRP (NeurIPS 2020), eqs. 6 to 9.

    Args:
        pos: (P,) or padded (L, P) scores of the positives.
        neg: (N,) or (L, N) scores of the negatives.
        box_errors: Localisation errors E of the positives, of the shape of ``pos``, in [0, 1] by
            the paper: ``1 - IoU`` over ``1 - 0.5``, or half the GIoU loss.
        delta: Half width of the step H in units of the scores, > 0.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        method: See :func:`pairwise_surrogate_sum`.
        group: Process group over which the negatives are spread; ``pos`` and ``box_errors`` must
            then be those of all ranks.

    Returns:
        Both parts, scalars or (L,) float64; 0 for a list without positives. The gradient of the
        scores is the paper's update (:func:`error_driven_loss`) for the error of both parts
        together; the weights of the box errors are constants.

    Raises:
        ValueError: If ``delta`` is not > 0 or the shapes do not fit.
        TypeError: If a score tensor is not of a float dtype.
    """
    counts = rank_counts(pos, neg, delta, pos_mask, neg_mask, method, group)
    box_errors = torch.where(pos_mask, box_errors.double(), 0)
    with torch.no_grad():
        rank = 1 + counts.positives + counts.false_positives
        inverse = torch.where(pos_mask, 1 / rank, 0)
        same = pos.double()
        own, extra = counts.own_steps, counts.own_extra
        # H(x) + H(-x) = 1 turns the sum over what is above i into what the transpose gives, H(0) =
        # 1/2 takes i itself out.
        detached = box_errors.detach()
        below = own.spread(detached, same, *extra)
        above = detached.sum(1, keepdim=True) - below - 0.5 * detached
        # Weight of E_k: 1/rank(k) + sum_{i != k} H(s_k - s_i)/rank(i).
        share = own.spread(inverse, same, *extra) + 0.5 * inverse
        share = torch.where(pos_mask, share, 0)
        value = (counts.false_positives * inverse).sum(1) / counts.num_pos
        error = (counts.false_positives + above.clamp(min=0)) * inverse
    classification = error_driven_loss(pos, neg, value, error, counts, _EPS)
    localisation = (share * box_errors).sum(1) / counts.num_pos
    return ALRP(classification, localisation)


alrp_loss_lists = score_lists(error_driven_alrp, 'alrp_loss_lists')
"""``error_driven_alrp`` of each row of scores; see ``score_lists``."""


def alrp_loss(
    logits: Tensor, targets: Tensor, box_errors: Tensor, *, delta: float = 1.0, method: str = 'auto'
) -> ALRP:
    """ALRP of one list.

    Source: Oksuz et al., A Ranking-based, Balanced Loss Function Unifying Classification and
    Localisation in Object Detection, NeurIPS 2020.

    Args:
        logits: Float scores of any shape, all in one ranking.
        targets: Same shape; > 0 positive, 0 negative, < 0 left out.
        box_errors: (n+,) localisation errors of the positives, in the order
            of ``targets``.
        delta: Half width of the step in units of the scores, > 0.
        method: See :func:`pairwise_surrogate_sum`.

    Returns:
        Both parts as scalars, float64 for float64 logits, else float32; 0, still attached to the
        graph, when there is no positive.

    Raises:
        ValueError: If ``delta`` is not > 0 or the shapes do not fit.
        TypeError: If the logits are not of a float dtype.

    Example:
        >>> alrp_loss(torch.tensor([2.0, 0.0, -3.0]), torch.tensor([0, 1, 0]),
        ...           torch.tensor([0.4]))
        ALRP(classification=tensor(0.5000), localisation=tensor(0.2000))
    """
    pos, neg, neg_mask, _ = split_targets(logits, targets)
    return error_driven_alrp(pos, neg, box_errors, delta=delta, neg_mask=neg_mask, method=method)
