"""Ranks of positives where a sample has several labels, a block of queries at a time."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.errors import UserError
from mmrank.tensors import check_tensors

from .input import RetrievalSets, check_ids, check_labels_of_itself, prepare_sets
from .ranking import Reduce, join_results

# Bytes of temporary tensors for a score.
_BYTES_PER_SCORE = 80


class SharedLabels(NamedTuple):
    """Queries and gallery in their own order, with the labels of both."""

    sets: RetrievalSets
    query_labels: Tensor  # (Q, C) float32, 0 or 1
    gallery_labels: Tensor  # (N, C)
    #: (Q,) and (N,) int64; a query leaves out what shares its id and a label. None: nothing.
    ids: tuple[Tensor, Tensor] | None

    def relevant(self, part: Tensor) -> tuple[Tensor, Tensor]:
        """(B, N) bool: what shares a label with each query, and what its ranking leaves out."""
        shared = self.query_labels[part] @ self.gallery_labels.T > 0
        left_out = torch.zeros_like(shared)
        if self.ids is not None:
            left_out = shared & (self.ids[0][part, None] == self.ids[1])
        elif self.sets.left_out is not None:
            left_out.scatter_(1, part[:, None], True)
        return shared & ~left_out, left_out

    def blocks(self, memory_limit: int) -> Sequence[Tensor]:
        """Rows of the queries, as many at a time as the memory allows."""
        rows = torch.arange(len(self.query_labels), device=self.query_labels.device)
        row_bytes = _BYTES_PER_SCORE * max(len(self.gallery_labels), 1)
        return rows.split(max(memory_limit // row_bytes, 1))

    def count_positives(self, memory_limit: int) -> Tensor:
        """Positives of each query, (Q,) int64."""
        counts = [self.relevant(part)[0].sum(1) for part in self.blocks(memory_limit)]
        return torch.cat(counts)


def share_labels(
    queries: Tensor,
    query_labels: Tensor,
    gallery: Tensor | None,
    gallery_labels: Tensor | None,
    similarity: str,
    leave_out: Tensor | tuple[Tensor, Tensor] | None,
) -> SharedLabels:
    """Check and normalise (rows, C) multi-hot labels with their embeddings."""
    own = _multi_hot(query_labels, queries, 'query_labels')
    one_class = torch.zeros(len(queries), dtype=torch.int64)
    if gallery is queries and gallery_labels is not None:
        check_labels_of_itself(query_labels, gallery_labels)
        gallery = None
        gallery_labels = None
    if gallery is None or gallery_labels is None:
        # One class: the gallery keeps its order; a missing half is refused there.
        sets = prepare_sets(queries, one_class, gallery, gallery_labels, similarity)
        others = own
        gallery = queries
    else:
        others = _multi_hot(gallery_labels, gallery, 'gallery_labels')
        if others.size(1) != own.size(1):
            raise UserError(
                f'query_labels have {own.size(1)} classes and gallery_labels {others.size(1)}. '
                'Fix: give both a column for each class'
            )
        of_gallery = torch.zeros(len(gallery), dtype=torch.int64)
        sets = prepare_sets(queries, one_class, gallery, of_gallery, similarity)
    ids = None
    if leave_out is not None:
        ids = check_ids(leave_out, queries, gallery, sets.left_out is not None)
    return SharedLabels(sets, own, others, ids)


def rank_shared(
    shared: SharedLabels,
    reduce: Reduce,
    results: Sequence[Tensor],
    *,
    memory_limit: int,
    best_only: bool = False,
    progress: Callable[[int, int], None] | None = None,
    group: 'dist.ProcessGroup | None' = None,
) -> None:
    """Fill in the ``results`` as ``rank_positives`` of ``ranking.py`` does."""
    sets = shared.sets
    ranked = sets.gallery[: sets.num_rows]
    blocks = shared.blocks(memory_limit)
    if group is not None:
        blocks = blocks[dist.get_rank(group) :: dist.get_world_size(group)]
    total = sum(map(len, blocks))
    done = 0
    for part in blocks:
        positive, left_out = shared.relevant(part)
        sizes = positive.sum(1)
        used = sizes > 0
        scores = (sets.queries[part] @ ranked.T).masked_fill_(left_out, -torch.inf)
        positives = scores.masked_fill(~positive, -torch.inf).sort(1, descending=True).values
        positives = positives[used, : int(sizes.max())].contiguous()
        ascending = scores[used].neg().sort(1).values
        thresholds = positives[:, :1] if best_only else positives
        at_or_above = torch.searchsorted(ascending, thresholds.neg(), right=True)
        if used.any():
            for whole, values in zip(results, reduce(positives, sizes[used], at_or_above)):
                whole[part[used]] = values
        done += len(part)
        if progress is not None:
            progress(done, total)
    if group is not None:
        join_results(results, group)


def _multi_hot(labels: Tensor, embeddings: Tensor, name: str) -> Tensor:
    """(rows, C) labels as float32 zeros and ones."""
    check_tensors(**{name: labels})
    if labels.dim() != 2 or len(labels) != len(embeddings) or labels.size(1) < 2:
        raise UserError(
            f'{name} must be one class index per sample, shape ({len(embeddings)},), or multi-hot, '
            f'({len(embeddings)}, classes), got {tuple(labels.shape)}. Fix: labels.squeeze(1) for '
            'a column of class indices'
        )
    odd = labels[(labels != 0) & (labels != 1)]
    if odd.numel():
        raise UserError(
            f'{name} of shape {tuple(labels.shape)} must be multi-hot, 0 or 1 for each class, got '
            f'{odd[0].item()}. Fix: pass labels of several levels to level_metrics'
        )
    return labels.to(embeddings.device, torch.float32)
