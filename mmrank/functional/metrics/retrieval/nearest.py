"""The best of the gallery for a few queries."""

import torch
from torch import Tensor

from .input import prepare_retrieval
from .stored import StoredEmbeddings

# Scores that are alive at a time.
_BLOCK = 2**26


@torch.no_grad()
def nearest_in_gallery(
    queries: Tensor,
    gallery: Tensor | StoredEmbeddings,
    count: int,
    *,
    similarity: str = 'cosine',
    own: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Best gallery samples of each query, best first.

    Equal scores keep the order of the gallery.

    Args:
        queries: (Q, D) float embeddings.
        gallery: (N, D) float embeddings on the same device, or in a file, of which 256 MiB are in
            memory at a time.
        count: Samples per query, at least 1.
        similarity: ``'cosine'`` or ``'dot'``.
        own: (Q,) int64 gallery rows of the queries themselves, which are
            left out; None for separate sets.

    Returns:
        (Q, K) scores and (Q, K) int64 gallery rows, with K the smaller of ``count`` and the
        gallery's size without the query.

    Raises:
        ValueError: As ``retrieval_metrics``, or if ``count`` is below 1.
        TypeError: If embeddings are not floats.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> nearest_in_gallery(x[:1], x, 2, own=torch.tensor([0]))
        (tensor([[0.8000, 0.0000]]), tensor([[1, 2]]))
    """
    if count < 1:
        raise ValueError(f'count must be at least 1, got {count}')
    if isinstance(gallery, StoredEmbeddings):
        return _nearest_stored(queries, gallery, count, similarity, own)
    sets = prepare_retrieval(
        queries,
        torch.zeros(len(queries), dtype=torch.int64),
        gallery,
        # One class: the gallery keeps its order.
        torch.zeros(len(gallery), dtype=torch.int64),
        similarity,
    )
    size, all_rows = sets.count, sets.gallery[: sets.count]
    count = min(count, size - int(own is not None))
    scores = sets.queries.new_empty(sets.queries.size(0), count)
    rows = torch.empty_like(scores, dtype=torch.int64)
    step = max(_BLOCK // max(size, 1), 1)
    for begin in range(0, sets.queries.size(0), step):
        part = slice(begin, begin + step)
        block = sets.queries[part] @ all_rows.T
        if own is not None:
            block.scatter_(1, own[part, None], float('-inf'))
        found = block.sort(dim=1, descending=True, stable=True)
        scores[part] = found.values[:, :count]
        rows[part] = found.indices[:, :count]
    return scores, rows


def _nearest_stored(
    queries: Tensor, gallery: StoredEmbeddings, count: int, similarity: str, own: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The best of each block, and of these the best."""
    wanted = count + int(own is not None)
    scores, rows = [], []
    of_block = max(_BLOCK // gallery.shape[1], 1)
    for block in torch.arange(len(gallery)).split(of_block):
        parts = block.split(gallery.rows_at_a_time(4 * _BLOCK))
        found = nearest_in_gallery(
            queries.cpu(),
            torch.cat([gallery.read(part) for part in parts]),
            wanted,
            similarity=similarity,
        )
        scores.append(found[0])
        rows.append(found[1] + int(block[0]))
    best, place = torch.cat(scores, 1).sort(dim=1, descending=True, stable=True)
    rows = torch.cat(rows, 1).gather(1, place)
    if own is not None:
        # Stable: what is left out goes behind, the others keep their order.
        is_own = (rows == own.cpu()[:, None]).to(torch.int8)
        kept = is_own.argsort(dim=1, stable=True)
        best, rows = best.gather(1, kept), rows.gather(1, kept)
    count = min(count, len(gallery) - int(own is not None))
    return best[:, :count].contiguous(), rows[:, :count].contiguous()
