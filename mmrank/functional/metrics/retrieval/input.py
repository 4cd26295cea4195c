"""Embeddings and labels: checked, normalised and in order of class."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmrank.errors import UserError
from mmrank.tensors import check_floats, check_tensors

SIMILARITIES = ('cosine', 'dot')
# Rows of a product that a library computes at once divide these, as far as known: 4, 6, 8 or 24 of
# the queries, 12, 16, 24, 32, 48 or 64 of the gallery.
QUERY_TILE = 48
GALLERY_TILE = 192


class RetrievalSets(NamedTuple):
    """Queries and gallery, ready to be ranked."""

    queries: Tensor  # (Q, D) float32 or float64
    gallery: Tensor  # (N, D), likewise, samples of one class next to each other
    begin: Tensor  # (Q,) int64 first gallery row of the query's class
    size: Tensor  # (Q,) int64 gallery samples of the query's class
    #: (Q, 2) int64 first gallery row that is left out of the query's ranking, and how many are, all
    #: of its class: itself, or what has its id, too. None: nothing is.
    left_out: Tensor | None
    num_rows: int  # N; ``gallery`` has more rows, see :func:`whole_tiles`


def whole_tiles(count, tile: int):
    """``count`` rounded up to whole tiles of a matrix product.

    A library sums up the rest of a tile in another order. Two equal embeddings would have scores
    that differ in the last bit, and the figures would depend on the order of the gallery and on the
    panels.
    """
    return -(-count // tile) * tile


def unit_rows(x: Tensor) -> Tensor:
    """Rows of length 1; rows of zeros stay. Neither over- nor underflows."""
    tiny = torch.finfo(x.dtype).tiny
    x = x / x.abs().amax(1, keepdim=True).clamp(min=tiny)
    return x.div_(torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp(1.0))


def class_ranges(ordered: Tensor, query_labels: Tensor) -> tuple[Tensor, Tensor]:
    """(Q,) first row of each query's class among (N,) ascending labels, and number of its rows."""
    # A column of labels on several levels is not.
    query_labels = query_labels.contiguous()
    begin = torch.searchsorted(ordered, query_labels)
    return begin, torch.searchsorted(ordered, query_labels, right=True) - begin


def prepare_sets(
    queries: Tensor,
    query_labels: Tensor,
    gallery: Tensor | None,
    gallery_labels: Tensor | None,
    similarity: str,
    leave_out: Tensor | tuple[Tensor, Tensor] | None = None,
) -> RetrievalSets:
    """Check, normalise and sort; see ``retrieval_metrics`` for the inputs."""
    if similarity not in SIMILARITIES:
        raise ValueError(f'similarity must be one of {SIMILARITIES}, got {similarity!r}')
    same_set = gallery is None and gallery_labels is None
    _check_embeddings(queries, 'queries')
    query_labels = _check_labels(query_labels, queries, 'query_labels')
    if gallery is queries and gallery_labels is not None:
        same_set = True
        check_labels_of_itself(query_labels, gallery_labels)
    if same_set:
        gallery = queries
        gallery_labels = query_labels
    elif gallery is None or gallery_labels is None:
        raise ValueError(
            'gallery and gallery_labels go together: pass both, or neither to '
            'search the queries among themselves'
        )
    else:
        _check_gallery(gallery, queries)
        gallery_labels = _check_labels(gallery_labels, gallery, 'gallery_labels')
    dtype = torch.promote_types(queries.dtype, gallery.dtype)
    dtype = torch.promote_types(dtype, torch.float32)
    if leave_out is None:
        order = gallery_labels.argsort(stable=True)
        own = order.argsort() if same_set else None
        left_out = None if own is None else torch.stack([own, torch.ones_like(own)], 1)
    else:
        ids = check_ids(leave_out, queries, gallery, same_set)
        order, left_out = _leave_out(query_labels, gallery_labels, *ids)
    begin, size = class_ranges(gallery_labels[order], query_labels)
    count = len(order)
    largest = _largest_value(queries, 'queries')
    other = largest if same_set else _largest_value(gallery, 'gallery')
    # The first row, which is not a sample there, fills the last tile.
    order = pad(order, (0, whole_tiles(count, GALLERY_TILE) - count))
    rows = queries.detach().to(dtype)
    sorted_gallery = gallery.detach().to(dtype)[order]
    if similarity == 'cosine':
        rows = unit_rows(rows)
        sorted_gallery = unit_rows(sorted_gallery)
    dimensions = queries.shape[1]
    if similarity == 'dot' and not largest * other * dimensions < torch.finfo(dtype).max / 4:
        raise ValueError(
            f'dot products of {dimensions} entries up to {largest * other:.3g} '
            f'overflow {dtype}; scale the embeddings down or use '
            "similarity='cosine'"
        )
    return RetrievalSets(rows, sorted_gallery, begin, size, left_out, count)


def check_ids(
    leave_out: Tensor | tuple[Tensor, Tensor], queries: Tensor, gallery: Tensor, same_set: bool
) -> tuple[Tensor, Tensor]:
    """(Q,) and (N,) ids as int64."""
    parts = (leave_out,) if isinstance(leave_out, Tensor) else tuple(leave_out)
    if len(parts) != (1 if same_set else 2):
        what = '(Q,) ids of the queries' if same_set else 'a pair, ids of the queries and gallery'
        raise ValueError(f'leave_out must be {what}, got {len(parts)} tensors')
    names = 'leave_out of the queries', 'leave_out of the gallery'
    checked = [_check_labels(*x) for x in zip(parts, (queries, gallery), names)]
    return checked[0], checked[-1]


def _leave_out(
    query_labels: Tensor, gallery_labels: Tensor, query_ids: Tensor, gallery_ids: Tensor
) -> tuple[Tensor, Tensor]:
    """(N,) gallery rows by class and id, and (Q, 2) first one of the query's, and how many."""
    count = len(query_labels)
    _, label = torch.cat([query_labels, gallery_labels]).unique(return_inverse=True)
    values, number = torch.cat([query_ids, gallery_ids]).unique(return_inverse=True)
    pair = label * len(values) + number
    order = pair[count:].argsort(stable=True)
    return order, torch.stack(class_ranges(pair[count:][order], pair[:count]), 1)


def check_labels_of_itself(query_labels: Tensor, gallery_labels: Tensor) -> None:
    """UserError if a gallery that is the queries themselves has other labels."""
    check_tensors(gallery_labels=gallery_labels)
    if not torch.equal(gallery_labels.to(query_labels), query_labels):
        raise UserError(
            'gallery is the very tensor queries, but gallery_labels are not query_labels. Fix: '
            'pass the embeddings of the gallery; without gallery and gallery_labels the queries '
            'search each other'
        )


def _check_embeddings(x: Tensor, name: str) -> None:
    check_floats(**{name: x})
    if len(x.shape) != 2 or x.shape[1] == 0:
        raise ValueError(
            f'{name} must be of shape (samples, dimensions) with at least '
            f'one dimension, got {tuple(x.shape)}'
        )


def _check_gallery(x: Tensor, queries: Tensor) -> None:
    _check_embeddings(x, 'gallery')
    if x.shape[1] != queries.shape[1]:
        raise ValueError(
            f'queries have {queries.shape[1]} dimensions and the gallery '
            f'{x.shape[1]}; both must come from one model'
        )
    if x.device != queries.device:
        raise ValueError(
            f'queries are on {queries.device} and the gallery on {x.device}; move one of them'
        )


def _check_labels(labels: Tensor, embeddings: Tensor, name: str) -> Tensor:
    """Labels as int64 on the embeddings' device, if there is one for each."""
    check_tensors(**{name: labels})
    if labels.dim() != 1 or labels.numel() != embeddings.shape[0]:
        raise ValueError(
            f'{name} must hold one class index per sample, shape ({embeddings.shape[0]},), got '
            f'{tuple(labels.shape)}; for several labels a sample give queries and gallery '
            'multi-hot labels, (samples, classes)'
        )
    if labels.is_floating_point() or labels.is_complex():
        raise TypeError(
            f'{name} must be of an integer dtype, got {labels.dtype}; '
            'call .long() if they are class indices'
        )
    return labels.to(embeddings.device, torch.int64)


def _largest_value(x: Tensor, name: str) -> float:
    """Largest absolute value, after a check that all rows are finite."""
    if x.numel() == 0:
        return 0.0
    largest = max(-x.min().item(), x.max().item())  # NaN wins in both
    if not float('-inf') < largest < float('inf'):
        finite = x.isfinite().all(1)
        row = int(finite.logical_not().nonzero()[0])
        raise ValueError(
            f'{name}[{row}] holds NaN or infinity ({int((~finite).sum())} of {x.size(0)} rows read '
            'do); such scores cannot be ranked: check the model and its input'
        )
    return largest
