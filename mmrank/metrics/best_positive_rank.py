"""Place of the best positive of each query, positives given as pairs."""

import torch
from torch import Tensor

from mmrank.metrics.retrieval.ranking import row_counts
from mmrank.tensors import at_least_float32

#: Scores held at a time.
_MAX_SCORES = 1 << 22


@torch.no_grad()
def best_positive_rank(queries: Tensor, gallery: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """(Q,) int64 place, from 1, of the first positive in the ranking of each query.

    ``1 + #{negatives whose score >= the best positive's}``: among ties the negatives come
    first, the least favourable order, and no place depends on the order of the gallery. Recall@K is
    the share of the queries whose place is at most K. Other than in
    :func:`mmrank.functional.retrieval_metrics` any pair may be positive: a caption of several
    images, an image with several captions.

    The score is the inner product of (Q, D) queries and the (N, D) gallery. The (P,) ``rows``,
    ascending, each there at least once, and ``cols`` are the positive pairs. A block of scores
    is in memory at a time.
    """
    for name, x in (('queries', queries), ('gallery', gallery)):
        if not bool(x.isfinite().all()):
            what = f'{name} hold NaN or infinity'
            raise ValueError(f'{what}; such scores cannot be ranked: check the model and its input')
    queries = at_least_float32(queries)
    gallery = gallery.to(queries.dtype).t()
    block = max(1, _MAX_SCORES // max(1, gallery.size(1)))
    begins = range(0, len(queries), block)
    bounds = torch.tensor([*begins, len(queries)], device=rows.device)
    bounds = torch.searchsorted(rows, bounds).tolist()
    places = []
    with torch.autocast(queries.device.type, enabled=False):
        for begin, start, stop in zip(begins, bounds, bounds[1:]):
            scores = queries[begin : begin + block] @ gallery
            pairs = rows[start:stop] - begin, cols[start:stop]
            own = scores[pairs]
            best = scores.new_full((len(scores),), -torch.inf)
            best.scatter_reduce_(0, pairs[0], own, 'amax')
            # Only the negatives are left.
            scores[pairs] = -torch.inf
            places.append(1 + row_counts(scores.ge_(best[:, None])))
    return torch.cat(places) if places else rows.new_zeros(0)
