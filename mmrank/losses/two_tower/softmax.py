"""Softmax over the right entities of a batch, corrected by their shares."""

import torch
from torch import Tensor

from mmrank.losses.contrastive.info_nce import info_nce_losses
from mmrank.losses.contrastive.ring import KeyRing
from mmrank.losses.contrastive.terms import negative_terms


def corrected_rows(
    left: Tensor, right: Tensor, log_share: Tensor | None, tau: float
) -> tuple[Tensor, Tensor]:
    """Rows whose inner product is ``<left, right> / tau - log q``.

    Args:
        left: (n, D) floats.
        right: (m, D) floats.
        log_share: (m,) log q. None: 0.
        tau: Temperature > 0.

    Returns:
        (n, D + 1) and (m, D + 1), at least float32.
    """
    dtype = torch.promote_types(left.dtype, right.dtype)
    dtype = torch.promote_types(dtype, torch.float32)
    left, right = left.to(dtype) / tau, right.to(dtype)
    if log_share is None:
        log_share = right.new_zeros(len(right))
    ones = left.new_ones(len(left), 1)
    with torch.autocast(left.device.type, enabled=False):
        return (torch.cat([left, ones], 1), torch.cat([right, -log_share[:, None].to(dtype)], 1))


def in_batch_softmax_losses(
    left: Tensor,
    right: Tensor,
    cols: Tensor,
    log_share: Tensor | None = None,
    tau: float = 1.0,
    *,
    all_keys: Tensor | None = None,
    all_cols: Tensor | None = None,
    ring: KeyRing | None = None,
) -> Tensor:
    """Cross-entropy of each pair of a batch, corrected for sampling.

    ``-log exp(s_pp) / sum_q exp(s_pq)`` with ``s_pq = <left_p, right_q> / tau
    - log q_q``: a right entity is a negative in proportion to the share q of the batches that it is
    in, so popular ones would be pushed away. Source:
    Yi et al., Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations, RecSys
    2019, eq. 4 and 5, with all rewards 1. Other pairs of the own right entity are left out of the
    sum, unlike there: they would be negatives of themselves.

    A factor of all shares cancels. No (B, B) matrix is kept; see
    :func:`mmrank.functional.negative_terms`. Differentiable once.

    Args:
        left: (B, D) embeddings of the left entities of the pairs.
        right: (B, D) of the right ones.
        cols: (B,) integers, the right entities.
        log_share: (B,) log q of the right entities. None: no correction.
        tau: Temperature > 0.
        all_keys: (M, D + 1) right rows of all ranks, see
            :func:`corrected_rows`. None: those of this batch.
        all_cols: (M,) their entities.
        ring: Where those come from instead; every rank must call this.

    Returns:
        (B,) losses >= 0, at least float32; 0 for a pair without negatives.

    Raises:
        ValueError: If shapes do not fit, or ``tau`` is not positive.

    Example:
        >>> eye, cols = torch.eye(2), torch.arange(2)
        >>> in_batch_softmax_losses(eye, eye, cols)
        tensor([0.3133, 0.3133])
        >>> share = torch.tensor([0.9, 0.1]).log()
        >>> in_batch_softmax_losses(eye, eye, cols, share)
        tensor([1.4612, 0.0401])
    """
    if not tau > 0:
        raise ValueError(f'tau must be > 0, got {tau!r}')
    anchors, keys = corrected_rows(left, right, log_share, tau)
    if all_keys is None:
        all_keys, all_cols = keys, cols
    terms = negative_terms(anchors, keys, all_keys, 1.0, cols, all_cols, ring=ring)
    return info_nce_losses(terms)
