"""Which rows of a batch are contrasted with which."""

import torch
from torch import Tensor

from .negative_terms import NegativeTerms, negative_terms


def two_view_terms(
    view1: Tensor,
    view2: Tensor,
    tau: Tensor | float,
    ids: Tensor | None = None,
    all_view1: Tensor | None = None,
    all_view2: Tensor | None = None,
    all_ids: Tensor | None = None,
) -> NegativeTerms:
    """Every view against both views of all other samples.

    Of B samples that differ each anchor has 2(B - 1) negatives. Source:
    iSogCLR (ICML 2023), eq. 11.

    Args:
        view1: (B, D) embeddings.
        view2: (B, D) embeddings of the same samples.
        tau: Temperature > 0: one, or (B,), one per sample.
        ids: (B,) integer samples. None: all rows differ.
        all_view1: (M, D) first views to draw the negatives from: those of
            all ranks. None: those of the batch.
        all_view2: (M, D), likewise.
        all_ids: (M,), likewise.

    Returns:
        Terms of 2B anchors, those of ``view1`` first.
    """
    ids, all_view1, all_view2, all_ids = _filled(
        view1, view2, ids, all_view1, all_view2, all_ids
    )
    if isinstance(tau, Tensor) and tau.dim():
        tau = tau.repeat(2)
    return negative_terms(
        torch.cat([view1, view2]),
        torch.cat([view2, view1]),
        torch.cat([all_view1, all_view2]),
        tau,
        ids.repeat(2),
        all_ids.repeat(2),
    )


def two_modality_terms(
    view1: Tensor,
    view2: Tensor,
    tau1: Tensor | float,
    tau2: Tensor | float,
    ids: Tensor | None = None,
    all_view1: Tensor | None = None,
    all_view2: Tensor | None = None,
    all_ids: Tensor | None = None,
) -> tuple[NegativeTerms, NegativeTerms]:
    """Each modality against the other one of all other pairs.

    Of B pairs that differ each anchor has B - 1 negatives. Source: iSogCLR
    (ICML 2023), eq. 15 and 16.

    Args:
        view1: (B, D) embeddings of one modality, such as images.
        view2: (B, D) embeddings of the other, such as texts.
        tau1: Temperature > 0 of the anchors in ``view1``: one, or (B,).
        tau2: That of the anchors in ``view2``.
        ids: (B,) integer pairs. None: all rows differ.
        all_view1: See :func:`two_view_terms`.
        all_view2: See :func:`two_view_terms`.
        all_ids: See :func:`two_view_terms`.

    Returns:
        Terms of the B anchors of ``view1`` and of ``view2``.
    """
    ids, all_view1, all_view2, all_ids = _filled(
        view1, view2, ids, all_view1, all_view2, all_ids
    )
    return (
        negative_terms(view1, view2, all_view2, tau1, ids, all_ids),
        negative_terms(view2, view1, all_view1, tau2, ids, all_ids),
    )


def _filled(view1, view2, ids, all_view1, all_view2, all_ids):
    if view1.dim() != 2 or view1.shape != view2.shape:
        raise ValueError(
            'view1 and view2 must be embeddings (samples, length) of the same '
            f'samples, got shapes {tuple(view1.shape)} and '
            f'{tuple(view2.shape)}'
        )
    given = [x is not None for x in (all_view1, all_view2)]
    if any(given) and not (all(given) and ids is not None):
        raise ValueError(
            'all_view1 and all_view2 go together, and with ids and all_ids'
        )
    if ids is None:
        ids = torch.arange(view1.size(0), device=view1.device)
    if not any(given):
        return ids, view1, view2, ids
    return ids, all_view1, all_view2, all_ids
