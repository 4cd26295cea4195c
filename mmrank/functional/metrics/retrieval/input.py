"""Checked embeddings and labels, the gallery put in order of class."""

from typing import NamedTuple

import torch
from torch import Tensor

SIMILARITIES = ('cosine', 'dot')


class RetrievalSets(NamedTuple):
    """What the ranking reads.

    Attributes:
        queries: (Q, D) float32 or float64.
        gallery: (N, D), samples of one class next to each other.
        begin: (Q,) int64 first gallery row of the query's class.
        size: (Q,) int64 gallery samples of the query's class.
        own: (Q,) int64 the query's own gallery row, None for separate sets.
    """

    queries: Tensor
    gallery: Tensor
    begin: Tensor
    size: Tensor
    own: Tensor | None


def _check_embeddings(x: Tensor, name: str) -> None:
    if x.dim() != 2 or x.size(1) == 0:
        raise ValueError(
            f'{name} must be of shape (samples, dimensions) with at least '
            f'one dimension, got {tuple(x.shape)}'
        )
    if not x.is_floating_point():
        raise TypeError(
            f'{name} must be of a float dtype, got {x.dtype}; '
            f'call {name}.float()'
        )


def _largest(x: Tensor, name: str) -> float:
    """Largest absolute value, after a check that all are finite."""
    if x.numel() == 0:
        return 0.0
    largest = max(-x.min().item(), x.max().item())  # NaN wins in both
    if not float('-inf') < largest < float('inf'):
        finite = x.isfinite().all(1)
        row = int(finite.logical_not().nonzero()[0])
        raise ValueError(
            f'{name}[{row}] holds NaN or infinity ({int((~finite).sum())} of '
            f'{x.size(0)} rows do); such scores cannot be ranked: check the '
            'model and its input'
        )
    return largest


def _check_labels(labels: Tensor, embeddings: Tensor, name: str) -> Tensor:
    if labels.dim() != 1 or labels.numel() != embeddings.size(0):
        raise ValueError(
            f'{name} must hold one class index per sample, shape '
            f'({embeddings.size(0)},), got {tuple(labels.shape)}; several '
            'labels per sample are not supported'
        )
    if labels.is_floating_point() or labels.is_complex():
        raise TypeError(
            f'{name} must be of an integer dtype, got {labels.dtype}; '
            'call .long() if they are class indices'
        )
    return labels.to(embeddings.device, torch.int64)


def _unit_rows(x: Tensor) -> Tensor:
    """Rows of length 1; rows of zeros stay. Neither over- nor underflows."""
    tiny = torch.finfo(x.dtype).tiny
    x = x / x.abs().amax(1, keepdim=True).clamp(min=tiny)
    return x.div_(torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp(1.0))


def prepare_retrieval(
    queries: Tensor,
    query_labels: Tensor,
    gallery: Tensor | None,
    gallery_labels: Tensor | None,
    similarity: str,
) -> RetrievalSets:
    """Check, normalise and sort; see ``retrieval_metrics`` for the inputs."""
    if similarity not in SIMILARITIES:
        raise ValueError(
            f'similarity must be one of {SIMILARITIES}, got {similarity!r}'
        )
    if (gallery is None) != (gallery_labels is None):
        raise ValueError(
            'gallery and gallery_labels go together: pass both, or neither to '
            'search the queries among themselves'
        )
    same_set = gallery is None
    _check_embeddings(queries, 'queries')
    query_labels = _check_labels(query_labels, queries, 'query_labels')
    largest = _largest(queries, 'queries')
    if same_set:
        gallery, gallery_labels = queries, query_labels
        largest *= largest
    else:
        _check_embeddings(gallery, 'gallery')
        if gallery.size(1) != queries.size(1):
            raise ValueError(
                f'queries have {queries.size(1)} dimensions and the gallery '
                f'{gallery.size(1)}; both must come from one model'
            )
        if gallery.device != queries.device:
            raise ValueError(
                f'queries are on {queries.device} and the gallery on '
                f'{gallery.device}; move one of them'
            )
        gallery_labels = _check_labels(
            gallery_labels, gallery, 'gallery_labels'
        )
        largest *= _largest(gallery, 'gallery')
    dtype = torch.promote_types(queries.dtype, gallery.dtype)
    dtype = torch.promote_types(dtype, torch.float32)
    dimensions = queries.size(1)
    if similarity == 'dot' and not (
        largest * dimensions < torch.finfo(dtype).max / 4
    ):
        raise ValueError(
            f'dot products of {dimensions} entries up to {largest:.3g} '
            f'overflow {dtype}; scale the embeddings down or use '
            "similarity='cosine'"
        )

    order = gallery_labels.argsort(stable=True)
    queries = queries.detach().to(dtype)
    gallery = gallery.detach().to(dtype)[order]
    if similarity == 'cosine':
        queries, gallery = _unit_rows(queries), _unit_rows(gallery)
    ordered = gallery_labels[order]
    begin = torch.searchsorted(ordered, query_labels)
    end = torch.searchsorted(ordered, query_labels, right=True)
    own = order.argsort() if same_set else None
    return RetrievalSets(queries, gallery, begin, end - begin, own)
