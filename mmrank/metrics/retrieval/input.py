"""Embeddings and labels of a retrieval, checked and normalised; the scores of blocks of queries."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmrank.errors import UserError
from mmrank.tensors import check_floats, check_tensors, refuse_swapped, unit_rows

# Rows of a product that a library computes at once divide these, as far as known: 4, 6, 8 or 24 of
# the queries, 12, 16, 24, 32, 48 or 64 of the gallery.
_QUERY_TILE = 48
_GALLERY_TILE = 192
#: Bytes of temporary tensors of a block of queries.
MEMORY_LIMIT = 2**30
# A product gains nothing from more queries at once.
_MOST_QUERIES = 480


@dataclass(frozen=True)
class RetrievalSets:
    """Queries and gallery, ready to be ranked."""

    queries: Tensor  # (Q, D) float32 or float64
    gallery: Tensor  # (N + padding, D), likewise
    query_labels: Tensor  # (Q,) int64, or (Q, C) float32 zeros and ones
    gallery_labels: Tensor  # (N,) or (N, C), likewise
    #: (Q,) and (N,) int64; a query leaves out what has its label and its id. None: nothing.
    ids: tuple[Tensor, Tensor] | None

    def scores(self, part: Tensor) -> Tensor:
        """(B, N) scores of (B,) rows of the queries.

        A library sums up the rest of a tile of a product in another order. Two equal embeddings
        would have scores that differ in the last bit, and the figures would depend on the order of
        the gallery. So the product has whole tiles.
        """
        rows = pad(part, (0, -len(part) % _QUERY_TILE))
        product = self.queries[rows] @ self.gallery.T
        return product[: len(part), : len(self.gallery_labels)]

    @cached_property
    def _classes(self) -> tuple[Tensor, Tensor, Tensor]:
        """(N,) gallery rows by class; of each query where its class begins, and its size."""
        ordered, rows = self.gallery_labels.sort(stable=True)
        begin = torch.searchsorted(ordered, self.query_labels)
        end = torch.searchsorted(ordered, self.query_labels, right=True)
        return rows, begin, end - begin

    def relevant(self, part: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs that share a label, of (B,) rows of the queries and of the gallery.

        (P,) rows of ``part``, ascending, (P,) rows of the gallery, and (P,) bool, what the query
        leaves out; the others are positives.
        """
        if self.query_labels.dim() == 1:
            rows, begin, sizes = self._classes
            sizes = sizes[part]
            every = torch.arange(len(part), device=part.device)
            row = every.repeat_interleave(sizes)
            first = begin[part] - (sizes.cumsum(0) - sizes)
            column = rows[first[row] + torch.arange(len(row), device=part.device)]
        else:
            shared = self.query_labels[part] @ self.gallery_labels.T > 0
            row, column = shared.nonzero(as_tuple=True)
        if self.ids is None:
            return row, column, torch.zeros_like(row, dtype=torch.bool)
        return row, column, self.ids[0][part[row]] == self.ids[1][column]

    def class_sizes(self) -> Tensor:
        """(Q,) int64 gallery samples of the query's class; N where there are several labels."""
        if self.query_labels.dim() == 1:
            return self._classes[2]
        return torch.full_like(self.query_labels[:, 0], len(self.gallery_labels)).long()


def query_blocks(order: Tensor, row_bytes: int) -> tuple[Tensor, ...]:
    """Split (Q,) rows of queries into blocks of at least one, of ``MEMORY_LIMIT`` where it can."""
    rows = min(max(MEMORY_LIMIT // max(row_bytes, 1), 1), _MOST_QUERIES)
    if rows > _QUERY_TILE:
        rows -= rows % _QUERY_TILE
    return order.split(rows)


def prepare_sets(
    queries: Tensor,
    query_labels: Tensor,
    gallery: Tensor | None,
    gallery_labels: Tensor | None,
    leave_out: Tensor | tuple[Tensor, Tensor] | None = None,
) -> RetrievalSets:
    """Check and normalise; see ``retrieval_metrics`` for the inputs."""
    refuse_swapped('queries', queries, query_labels)
    _check_embeddings(queries, 'queries')
    own_labels = _check_labels(query_labels, queries, 'query_labels')
    same_set = gallery is None and gallery_labels is None
    if gallery is queries and gallery_labels is not None:
        same_set = True
        if not torch.equal(gallery_labels.to(query_labels), query_labels):
            raise UserError(
                'gallery is the very tensor queries, but gallery_labels are not query_labels',
                'pass the embeddings of the gallery; without gallery and gallery_labels the '
                'queries search each other',
            )
    if same_set:
        gallery = queries
        labels = own_labels
    elif gallery is None or gallery_labels is None:
        what = 'gallery and gallery_labels go together'
        raise UserError(what, 'pass both, or neither to search the queries among themselves')
    else:
        _check_embeddings(gallery, 'gallery')
        labels = _check_labels(gallery_labels, gallery, 'gallery_labels')
    for what, one, two in (('', queries, gallery), ('labels of ', own_labels, labels)):
        if one.shape[1:] != two.shape[1:]:
            raise UserError(
                f'{what}queries and gallery have the shapes {tuple(one.shape)} and '
                f'{tuple(two.shape)}',
                'the same columns in both, of one model and of the same classes',
            )
    ids = None
    if leave_out is not None:
        ids = _check_ids(leave_out, queries, gallery, same_set)
    elif same_set:
        own = torch.arange(len(queries), device=queries.device)
        ids = own, own
    dtype = torch.promote_types(torch.promote_types(queries.dtype, gallery.dtype), torch.float32)
    rows = unit_rows(queries.detach().to(dtype))
    all_rows = rows if same_set else unit_rows(gallery.detach().to(dtype))
    all_rows = pad(all_rows, (0, 0, 0, -len(gallery) % _GALLERY_TILE))
    return RetrievalSets(rows, all_rows, own_labels, labels, ids)


def _check_ids(
    leave_out: Tensor | tuple[Tensor, Tensor], queries: Tensor, gallery: Tensor, same_set: bool
) -> tuple[Tensor, Tensor]:
    parts = (leave_out,) if isinstance(leave_out, Tensor) else tuple(leave_out)
    if len(parts) != (1 if same_set else 2):
        what = '(Q,) ids of the queries' if same_set else 'a pair, ids of the queries and gallery'
        raise ValueError(f'leave_out must be {what}, got {len(parts)} tensors')
    names = 'leave_out of the queries', 'leave_out of the gallery'
    checked = [_check_index(*x) for x in zip(parts, (queries, gallery), names)]
    return checked[0], checked[-1]


def _check_embeddings(x: Tensor, name: str) -> None:
    check_floats(**{name: x})
    if x.dim() != 2 or x.shape[1] == 0:
        what = f'{name} must be of shape (samples, dimensions) with at least one dimension'
        raise ValueError(f'{what}, got {tuple(x.shape)}')
    # The extremes alone: no table of bools, and NaN wins in both.
    if x.numel() and not torch.stack([x.amin(), x.amax()]).isfinite().all():
        finite = x.isfinite().all(1)
        row = int(finite.logical_not().nonzero()[0])
        raise ValueError(
            f'{name}[{row}] holds NaN or infinity ({int((~finite).sum())} of {x.size(0)} rows '
            'do); such scores cannot be ranked: check the model and its input'
        )


def _check_labels(labels: Tensor, embeddings: Tensor, name: str) -> Tensor:
    """(rows,) int64 classes, or (rows, C) float32 zeros and ones, on the embeddings' device."""
    check_tensors(**{name: labels})
    if labels.dim() != 2:
        classes = _check_index(labels, embeddings, name)
        check_classes(classes, name)
        return classes
    if len(labels) != len(embeddings) or labels.size(1) < 2:
        raise UserError(
            f'{name} must be one class index per sample, shape ({len(embeddings)},), or multi-hot, '
            f'({len(embeddings)}, classes), got {tuple(labels.shape)}',
            'labels.squeeze(1) for a column of class indices',
        )
    odd = labels[(labels != 0) & (labels != 1)]
    if odd.numel():
        raise UserError(
            f'{name} of shape {tuple(labels.shape)} must be multi-hot, 0 or 1 for each class, got '
            f'{odd[0].item()}',
            '0 where a class is not known; labels of several levels go to level_metrics',
        )
    return labels.to(embeddings.device, torch.float32)


def check_classes(labels: Tensor, name: str) -> None:
    """Raise UserError for a class below 0: -1 is not a class in which samples could be found."""
    unknown = int((labels < 0).sum())
    if unknown:
        raise UserError(
            f'{name} holds {unknown} values below 0, got {int(labels.min())}',
            'leave samples without a class out: keep = '
            + (f'{name} >= 0' if labels.dim() == 1 else f'({name} >= 0).all(1)'),
        )


def _check_index(labels: Tensor, embeddings: Tensor, name: str) -> Tensor:
    """(rows,) integers as int64 on the embeddings' device."""
    check_tensors(**{name: labels})
    if labels.dim() != 1 or labels.numel() != embeddings.shape[0]:
        raise ValueError(
            f'{name} must hold one class index per sample, shape ({embeddings.shape[0]},), got '
            f'{tuple(labels.shape)}; for several labels a sample give queries and gallery '
            'multi-hot labels, (samples, classes)'
        )
    if labels.is_floating_point() or labels.is_complex():
        what = f'{name} must be of an integer dtype, got {labels.dtype}'
        raise TypeError(f'{what}; call .long() if they are class indices')
    return labels.to(embeddings.device, torch.int64).contiguous()
