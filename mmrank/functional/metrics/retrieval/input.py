"""Checked embeddings and labels, the gallery put in order of class."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from .stored import StoredEmbeddings

SIMILARITIES = ('cosine', 'dot')


class RetrievalSets(NamedTuple):
    """What the ranking reads.

    Attributes:
        queries: (Q, D) float32 or float64.
        gallery: (N, D), samples of one class next to each other.
        begin: (Q,) int64 first gallery row of the query's class.
        size: (Q,) int64 gallery samples of the query's class.
        own: (Q,) int64 the query's own gallery row, None for separate sets.
        count: N; ``gallery`` has more rows, see :func:`whole_tiles`.
    """

    queries: Tensor
    gallery: Tensor
    begin: Tensor
    size: Tensor
    own: Tensor | None
    count: int


# Rows of a product that a library computes at once divide these, as far as known: 4, 6, 8 or 24 of
# the queries, 12, 16, 24, 32, 48 or 64 of the gallery.
QUERY_TILE, GALLERY_TILE = 48, 192


def whole_tiles(count: int, tile: int) -> int:
    """``count`` rounded up to whole tiles of a matrix product.

    What is left over for a part of a tile is summed up in another order. Two equal embeddings would
    have scores that differ in the last bit, and the figures would depend on the order of the
    gallery and on the panels.
    """
    return -(-count // tile) * tile


def check_embeddings(
    x: Tensor | StoredEmbeddings, name: str, queries: Tensor | StoredEmbeddings | None = None
) -> None:
    """Refuse what holds no embeddings, or not those of the queries' model."""
    if len(x.shape) != 2 or x.shape[1] == 0:
        raise ValueError(
            f'{name} must be of shape (samples, dimensions) with at least '
            f'one dimension, got {tuple(x.shape)}'
        )
    if not x.dtype.is_floating_point:
        raise TypeError(f'{name} must be of a float dtype, got {x.dtype}; call {name}.float()')
    if queries is not None and x.shape[1] != queries.shape[1]:
        raise ValueError(
            f'queries have {queries.shape[1]} dimensions and the gallery '
            f'{x.shape[1]}; both must come from one model'
        )


def largest_value(x: Tensor, name: str, rows: Tensor | None = None) -> float:
    """Largest absolute value, after a check that all are finite.

    Args:
        x: Embeddings.
        name: What the message calls them.
        rows: (n,) rows that these are; None for all.
    """
    if x.numel() == 0:
        return 0.0
    largest = max(-x.min().item(), x.max().item())  # NaN wins in both
    if not float('-inf') < largest < float('inf'):
        finite = x.isfinite().all(1)
        row = int(finite.logical_not().nonzero()[0])
        row = row if rows is None else int(rows[row])
        raise ValueError(
            f'{name}[{row}] holds NaN or infinity ({int((~finite).sum())} of {x.size(0)} rows read '
            'do); such scores cannot be ranked: check the model and its input'
        )
    return largest


def check_labels(labels: Tensor, embeddings: Tensor | StoredEmbeddings, name: str) -> Tensor:
    """Labels as int64 on the embeddings' device, if there is one for each."""
    if labels.dim() != 1 or labels.numel() != embeddings.shape[0]:
        raise ValueError(
            f'{name} must hold one class index per sample, shape ({embeddings.shape[0]},), got '
            f'{tuple(labels.shape)}; several labels per sample are not supported'
        )
    if labels.is_floating_point() or labels.is_complex():
        raise TypeError(
            f'{name} must be of an integer dtype, got {labels.dtype}; '
            'call .long() if they are class indices'
        )
    return labels.to(getattr(embeddings, 'device', 'cpu'), torch.int64)


def unit_rows(x: Tensor) -> Tensor:
    """Rows of length 1; rows of zeros stay. Neither over- nor underflows."""
    tiny = torch.finfo(x.dtype).tiny
    x = x / x.abs().amax(1, keepdim=True).clamp(min=tiny)
    return x.div_(torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp(1.0))


def check_pair(gallery: object, gallery_labels: Tensor | None, similarity: str) -> None:
    """Refuse an unknown similarity, and a gallery without its labels."""
    if similarity not in SIMILARITIES:
        raise ValueError(f'similarity must be one of {SIMILARITIES}, got {similarity!r}')
    if (gallery is None) != (gallery_labels is None):
        raise ValueError(
            'gallery and gallery_labels go together: pass both, or neither to '
            'search the queries among themselves'
        )


def check_dot_products(largest: float, dimensions: int, dtype: torch.dtype) -> None:
    """Refuse embeddings whose dot products might overflow.

    Args:
        largest: Largest product of an entry of a query and of the gallery.
        dimensions: Entries of an embedding.
        dtype: Of the scores.
    """
    if not largest * dimensions < torch.finfo(dtype).max / 4:
        raise ValueError(
            f'dot products of {dimensions} entries up to {largest:.3g} '
            f'overflow {dtype}; scale the embeddings down or use '
            "similarity='cosine'"
        )


def class_ranges(ordered: Tensor, query_labels: Tensor) -> tuple[Tensor, ...]:
    """First gallery row of each query's class, and number of its rows.

    Args:
        ordered: (N,) labels of the gallery, ascending.
        query_labels: (Q,).
    """
    begin = torch.searchsorted(ordered, query_labels)
    end = torch.searchsorted(ordered, query_labels, right=True)
    return begin, end - begin


def prepare_retrieval(
    queries: Tensor,
    query_labels: Tensor,
    gallery: Tensor | None,
    gallery_labels: Tensor | None,
    similarity: str,
) -> RetrievalSets:
    """Check, normalise and sort; see ``retrieval_metrics`` for the inputs."""
    check_pair(gallery, gallery_labels, similarity)
    same_set = gallery is None
    check_embeddings(queries, 'queries')
    query_labels = check_labels(query_labels, queries, 'query_labels')
    largest = largest_value(queries, 'queries')
    if same_set:
        gallery, gallery_labels = queries, query_labels
        largest *= largest
    else:
        check_embeddings(gallery, 'gallery', queries)
        if gallery.device != queries.device:
            raise ValueError(
                f'queries are on {queries.device} and the gallery on '
                f'{gallery.device}; move one of them'
            )
        gallery_labels = check_labels(gallery_labels, gallery, 'gallery_labels')
        largest *= largest_value(gallery, 'gallery')
    dtype = torch.promote_types(queries.dtype, gallery.dtype)
    dtype = torch.promote_types(dtype, torch.float32)
    if similarity == 'dot':
        check_dot_products(largest, queries.size(1), dtype)

    order = gallery_labels.argsort(stable=True)
    queries = queries.detach().to(dtype)
    count = order.numel()
    begin, size = class_ranges(gallery_labels[order], query_labels)
    own = order.argsort() if same_set else None
    # What fills the last tile is the first row, which is no sample there.
    order = pad(order, (0, whole_tiles(count, GALLERY_TILE) - count))
    gallery = gallery.detach().to(dtype)[order]
    if similarity == 'cosine':
        queries, gallery = unit_rows(queries), unit_rows(gallery)
    return RetrievalSets(queries, gallery, begin, size, own, count)
