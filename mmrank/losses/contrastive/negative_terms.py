"""The negatives of each row of a batch, and mean exp(h/tau) over them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.losses.contrastive.ring import KeyRing

from .log_mean_exp import BLOCK_ENTRIES, LogMeanExp, SameSample
from .ring_log_mean_exp import RingLogMeanExp


@dataclass
class NegativeTerms:
    """Inputs of a global contrastive loss for n anchors.

    Attributes:
        log_mean: (n,) ``log g = log mean_z exp(h(z)/tau)``, differentiable; -inf for an anchor
            without negatives.
        mean_h: (n,) mean of h under the weights ``exp(h/tau)``, without gradient; 0 for an anchor
            without negatives.
        count: (n,) int64 number of negatives.
    """

    log_mean: Tensor
    mean_h: Tensor
    count: Tensor


def negative_terms(
    anchors: Tensor,
    positives: Tensor,
    keys: Tensor,
    tau: Tensor | float,
    anchor_ids: Tensor,
    key_ids: Tensor,
    block_entries: int = BLOCK_ENTRIES,
    ring: KeyRing | None = None,
) -> NegativeTerms:
    """Compare anchors with their negatives.

    ``h(z) = <a, z> - <a, a+>`` and ``g = mean_z exp(h(z)/tau)`` over the keys z of other samples.
    Source: iSogCLR (ICML 2023), eq. 11, 15 and 16. No exponential is formed that is above 1, and
    the similarities are there in strips of rows, of large batches in backward once more. Where
    anchors and keys are one and the same tensor, and their ids too, a similarity is computed for
    both of its samples at once.

    Args:
        anchors: (n, D) floats a.
        positives: (n, D) the other view a+ of each.
        keys: (m, D) candidates z.
        tau: Temperature > 0: one, or (n,).
        anchor_ids: (n,) integer sample of each anchor.
        key_ids: (m,) integer sample of each key. Keys of the anchor's own sample are no negatives.
        block_entries: Similarities at a time, at most.
        ring: Where the keys of other ranks come from; those given are the
            ones of this rank. Every rank must call this, and run backward.

    Returns:
        Terms in at least float32. The gradient reaches anchors, positives, keys and a ``tau`` that
        requires it, with
        ``d log g/d tau = -mean_h/tau^2``.

    Raises:
        ValueError: If shapes do not fit.
    """
    n, m = anchors.size(0), keys.size(0)
    if (
        positives.shape != anchors.shape
        or keys.shape[1:] != anchors.shape[1:]
        or anchor_ids.shape != (n,)
        or key_ids.shape != (m,)
    ):
        raise ValueError(
            'anchors and positives must be (n, D), keys (m, D) and the ids (n,) and (m,); got '
            f'{tuple(anchors.shape)}, {tuple(positives.shape)}, {tuple(keys.shape)}, '
            f'{tuple(anchor_ids.shape)} and {tuple(key_ids.shape)}'
        )
    if ring is not None:
        return _ring_terms(anchors, positives, keys, tau, anchor_ids, key_ids, block_entries, ring)
    mirrored = keys is anchors and key_ids is anchor_ids
    return _terms(
        anchors, None if mirrored else keys, positives, [tau], anchor_ids, key_ids, block_entries
    )[0]


def _terms(
    rows: Tensor,
    columns: Tensor | None,
    positives: Tensor | None,
    taus: list[Tensor | float],
    row_ids: Tensor,
    column_ids: Tensor,
    block_entries: int = BLOCK_ENTRIES,
) -> list[NegativeTerms]:
    """Terms of the rows, and of the columns if there are two temperatures.

    Args:
        rows: (n, D).
        columns: (m, D), or None for the rows again.
        positives: (n, D), or None for the columns.
        taus: Temperature of the rows, or those of rows and columns.
        row_ids: (n,).
        column_ids: (m,); the same object as ``row_ids`` if they are equal.
        block_entries: Similarities at a time.
    """
    dtype = torch.promote_types(rows.dtype, torch.float32)
    rows, columns, positives = (
        None if x is None else x.to(dtype) for x in (rows, columns, positives)
    )
    # h/tau of 400 needs the full mantissa: no autocast here.
    with torch.autocast(rows.device.type, enabled=False):
        own = None if positives is None else (rows * positives).sum(1)
        taus = [torch.as_tensor(x, dtype=dtype, device=rows.device).expand(len(rows)) for x in taus]
        same = SameSample(row_ids, column_ids)
        found = LogMeanExp.apply(rows, columns, own, same, block_entries, *taus)
    counts = same.rows_others, same.columns_others
    return [NegativeTerms(*x) for x in zip(found[::2], found[1::2], counts)]


def _ring_terms(
    anchors: Tensor,
    positives: Tensor,
    keys: Tensor,
    tau: Tensor | float,
    anchor_ids: Tensor,
    key_ids: Tensor,
    block_entries: int,
    ring: KeyRing,
) -> NegativeTerms:
    dtype = torch.promote_types(anchors.dtype, torch.float32)
    anchors, positives, keys = (x.to(dtype) for x in (anchors, positives, keys))
    with torch.autocast(anchors.device.type, enabled=False):
        tau = torch.as_tensor(tau, dtype=dtype, device=anchors.device)
        found = RingLogMeanExp.apply(
            anchors,
            keys,
            (anchors * positives).sum(1),
            tau.expand(len(anchors)),
            anchor_ids,
            key_ids,
            ring,
            block_entries,
        )
    return NegativeTerms(*found)


def two_view_terms(
    view1: Tensor,
    view2: Tensor,
    tau: Tensor | float,
    ids: Tensor | None = None,
    all_view1: Tensor | None = None,
    all_view2: Tensor | None = None,
    all_ids: Tensor | None = None,
    ring: KeyRing | None = None,
) -> NegativeTerms:
    """Every view against both views of all other samples.

    Of B samples that differ each anchor has 2(B - 1) negatives. Source: iSogCLR (ICML 2023), eq.
    11.

    Args:
        view1: (B, D) embeddings.
        view2: (B, D) embeddings of the same samples.
        tau: Temperature > 0: one, or (B,), one per sample.
        ids: (B,) integer samples. None: all rows differ.
        all_view1: (M, D) first views to draw the negatives from: those of
            all ranks. None: those of the batch.
        all_view2: (M, D), likewise.
        all_ids: (M,), likewise.
        ring: Where the views of other ranks come from, instead of those
            three; its counts are those of samples.

    Returns:
        Terms of 2B anchors, those of ``view1`` first.
    """
    ids, all_view1, all_view2, all_ids = _filled(view1, view2, ids, all_view1, all_view2, all_ids)
    if isinstance(tau, Tensor) and tau.dim():
        tau = tau.repeat(2)
    anchors, anchor_ids = torch.cat([view1, view2]), ids.repeat(2)
    keys, key_ids = anchors, anchor_ids
    if not _are_all(view1, view2, ids, all_view1, all_view2, all_ids):
        keys, key_ids = torch.cat([all_view1, all_view2]), all_ids.repeat(2)
    positives = torch.cat([view2, view1])
    if ring is not None:
        ring = ring.of_views(2)
    return negative_terms(anchors, positives, keys, tau, anchor_ids, key_ids, ring=ring)


def two_modality_terms(
    view1: Tensor,
    view2: Tensor,
    tau1: Tensor | float,
    tau2: Tensor | float,
    ids: Tensor | None = None,
    all_view1: Tensor | None = None,
    all_view2: Tensor | None = None,
    all_ids: Tensor | None = None,
    ring: KeyRing | None = None,
) -> tuple[NegativeTerms, NegativeTerms]:
    """Each modality against the other one of all other pairs.

    Of B pairs that differ each anchor has B - 1 negatives. Source: iSogCLR (ICML 2023), eq. 15 and
    16.

    Args:
        view1: (B, D) embeddings of one modality, such as images.
        view2: (B, D) embeddings of the other, such as texts.
        tau1: Temperature > 0 of the anchors in ``view1``: one, or (B,).
        tau2: That of the anchors in ``view2``.
        ids: (B,) integer pairs. None: all rows differ.
        all_view1: See :func:`two_view_terms`.
        all_view2: See :func:`two_view_terms`.
        all_ids: See :func:`two_view_terms`.
        ring: See :func:`two_view_terms`.

    Returns:
        Terms of the B anchors of ``view1`` and of ``view2``.
    """
    ids, all_view1, all_view2, all_ids = _filled(view1, view2, ids, all_view1, all_view2, all_ids)
    alone = _are_all(view1, view2, ids, all_view1, all_view2, all_ids)
    if ring is None and alone:
        taus = [tau1, tau2]
        return tuple(_terms(view1, view2, None, taus, ids, ids))
    return (
        negative_terms(view1, view2, all_view2, tau1, ids, all_ids, ring=ring),
        negative_terms(view2, view1, all_view1, tau2, ids, all_ids, ring=ring),
    )


def _are_all(view1, view2, ids, all_view1, all_view2, all_ids) -> bool:
    """Whether the negatives come from the anchors themselves."""
    pairs = (view1, all_view1), (view2, all_view2), (ids, all_ids)
    return all(own is every for own, every in pairs)


def _filled(view1, view2, ids, all_view1, all_view2, all_ids):
    if view1.dim() != 2 or view1.shape != view2.shape:
        raise ValueError(
            'view1 and view2 must be embeddings (samples, length) of the same samples, got shapes '
            f'{tuple(view1.shape)} and {tuple(view2.shape)}'
        )
    given = [x is not None for x in (all_view1, all_view2)]
    if any(given) and not (all(given) and ids is not None):
        raise ValueError('all_view1 and all_view2 go together, and with ids and all_ids')
    if ids is None:
        ids = torch.arange(view1.size(0), device=view1.device)
    if not any(given):
        return ids, view1, view2, ids
    return ids, all_view1, all_view2, all_ids
