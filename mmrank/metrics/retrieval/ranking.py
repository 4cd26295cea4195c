"""The rank of every positive of every query, a block of queries at a time.

One product of a block with the whole gallery gives the scores of the positives and those that are
counted at or above each, so rounding cannot make them disagree. Ranks of a process group take whole
blocks in turn: the products of a block do not depend on how many processes there are, and so no
figure does.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.metrics.retrieval.input import RetrievalSets, query_blocks

# Comparisons read the scores once per threshold, a sort takes as long as about this many.
_MOST_COMPARISONS = 64
# Scores that are counted at once: what fits the cache of a CPU.
_SCORES_AT_ONCE = {'cpu': 2**18, 'other': 2**24}
# Bytes of temporary tensors for a score, and for a positive.
_BYTES_PER_SCORE = 16
_BYTES_PER_POSITIVE = 192

#: Takes the positives' scores (B, P), descending, the padding last, the number of positives (B,)
#: and the gallery scores at or above each positive (B, P); returns tensors of B rows.
Reduce = Callable[[Tensor, Tensor, Tensor], Sequence[Tensor]]


def rank_positives(
    sets: RetrievalSets,
    reduce: Reduce,
    results: Sequence[Tensor],
    *,
    bytes_per_query: int = 0,
    group: 'dist.ProcessGroup | None' = None,
) -> None:
    """Fill in the ``results``, tensors of Q rows of zeros, by ``reduce`` of each block.

    ``reduce`` needs ``bytes_per_query`` plus a few values per positive. Other arguments: see
    ``retrieval_metrics``.
    """
    sizes = sets.class_sizes()
    row_bytes = _BYTES_PER_SCORE * len(sets.gallery) + bytes_per_query
    if len(sizes):
        row_bytes += _BYTES_PER_POSITIVE * int(sizes.max())
    # Queries of equally large classes share a block, so that little of its table of positives is
    # padding.
    blocks = query_blocks(sizes.argsort(descending=True, stable=True), row_bytes)
    if group is not None:
        blocks = blocks[dist.get_rank(group) :: dist.get_world_size(group)]
    for part in blocks:
        for whole, values in zip(results, reduce(*_ranks(sets, part))):
            whole[part] = values
    if group is not None:
        # NCCL knows no CPU tensors, and gloo not all operations on a GPU.
        place = {'nccl': 'cuda', 'gloo': 'cpu'}.get(dist.get_backend(group))
        # The sum is exact, since every row is zero on all ranks but one.
        for result in results:
            shared = result if place is None else result.to(place)
            dist.all_reduce(shared, group=group)
            result.copy_(shared)


def _ranks(sets: RetrievalSets, part: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What ``Reduce`` takes, of some rows of the queries."""
    row, column, left_out = sets.relevant(part)
    scores = sets.scores(part)
    scores[row[left_out], column[left_out]] = -torch.inf
    row = row[~left_out]
    column = column[~left_out]
    sizes = torch.bincount(row, minlength=len(part))
    place = torch.arange(len(row), device=row.device) - (sizes.cumsum(0) - sizes)[row]
    most = int(sizes.max()) if len(row) else 1
    positives = scores.new_full((len(part), most), -torch.inf)
    positives[row, place] = scores[row, column]
    positives = positives.sort(1, descending=True).values
    return positives, sizes, count_at_or_above(scores, positives)


def count_at_or_above(scores: Tensor, thresholds: Tensor) -> Tensor:
    """(B, P) int64 exact numbers of the (B, N) scores that are >= each threshold of their row."""
    most = _SCORES_AT_ONCE.get(scores.device.type, _SCORES_AT_ONCE['other'])
    rows = max(most // max(scores.size(1), 1), 1)
    parts = zip(scores.split(rows), thresholds.split(rows))
    return torch.cat([_count(*x) for x in parts])


def _count(scores: Tensor, thresholds: Tensor) -> Tensor:
    if thresholds.size(1) > _MOST_COMPARISONS:
        if scores.device.type == 'cpu':
            # NumPy, which keeps no indices, sorts several times as fast.
            ordered = torch.from_numpy(np.sort(scores.numpy(), axis=1))
        else:
            ordered = scores.sort(1).values
        return scores.size(1) - torch.searchsorted(ordered, thresholds.contiguous())
    # A CPU writes ones and zeros of the scores' own type four times as fast as bools, a GPU reads
    # bools four times as fast.
    dtype = scores.dtype if scores.device.type == 'cpu' else torch.bool
    reached = torch.empty(scores.shape, dtype=dtype, device=scores.device)
    counts = [row_counts(torch.ge(scores, x, out=reached)) for x in thresholds.split(1, dim=1)]
    return torch.stack(counts, dim=1)


def row_counts(reached: Tensor) -> Tensor:
    """Exact number of ones in each row of (B, W) bools, or of ones and zeros as floats."""
    if reached.is_floating_point() and reached.size(1) > 2**24:
        return reached.sum(1, dtype=torch.float64).long()
    return reached.sum(1).long()
