"""The right entities of the largest inner products."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmrank.settings import check_at_least
from mmrank.tensors import at_least_float32

#: Scores held at a time.
_MAX_SCORES = 1 << 19
#: Numbers of which a selection first sees the maximum only.
_GROUP_SIZE = 4
#: A selection from up to so many times k numbers is not worth groups.
_SELECT_FROM = 8


def top_k_inner_product(
    left: Tensor, right: Tensor, k: int, excluded_rows: Tensor, excluded_cols: Tensor
) -> tuple[Tensor, Tensor]:
    """Find the k best of (n, D) right entities of each of (B, D) left ones, some left out.

    The (E,) ``excluded_rows``, ascending, and ``excluded_cols`` are the pairs to leave out. A block
    of scores is in memory at a time. Returns (B, k) inner products, at least float32, and (B, k)
    int64 entities, best first; -inf and -1 where there are fewer than k to choose from. Ties come
    in any order, NaN first.
    """
    check_at_least(1, k=k)
    num_right = len(right)
    if not bool((excluded_rows[1:] >= excluded_rows[:-1]).all()):
        raise ValueError('excluded_rows must ascend; sort the excluded pairs')
    left = at_least_float32(left)
    right = right.to(left.dtype)
    # Columns that fall into equal groups at every level; the loop masks the scores of the padding.
    multiple = 1
    groups = num_right
    while groups > _SELECT_FROM * k:
        groups = -(-groups // _GROUP_SIZE)
        multiple *= _GROUP_SIZE
    right = pad(right.t(), (0, -num_right % multiple)).contiguous()
    block = max(1, _MAX_SCORES // max(1, right.size(1)))
    begins = list(range(0, len(left), block))
    bounds = torch.tensor([*begins, len(left)], device=excluded_rows.device)
    bounds = torch.searchsorted(excluded_rows, bounds).tolist()
    found = left.new_full((len(left), k), -torch.inf)
    result = torch.full_like(found, -1, dtype=torch.long)
    with torch.autocast(left.device.type, enabled=False):
        for begin, start, stop in zip(begins, bounds, bounds[1:]):
            scores = left[begin : begin + block] @ right
            scores[:, num_right:] = -torch.inf
            excluded = (excluded_rows[start:stop] - begin) * scores.size(1)
            excluded += excluded_cols[start:stop]
            scores.view(-1).index_fill_(0, excluded, -torch.inf)
            best, cols = _top_k(scores, min(k, num_right))
            cols = torch.where(best == -torch.inf, -1, cols)
            rows = slice(begin, begin + block)
            found[rows, : cols.size(1)] = best
            result[rows, : cols.size(1)] = cols
    return found, result


def _top_k(scores: Tensor, k: int, ordered: bool = True) -> tuple[Tensor, Tensor]:
    """``scores.topk(k)`` of (B, n) floats, n padded, which looks only into the best groups.

    The k largest numbers are in the k groups with the largest maxima, up to ties, and these groups
    are found in the same way. Maxima are quick, while a selection takes long for each number.
    """
    num_groups = scores.size(1) // _GROUP_SIZE
    if scores.size(1) <= _SELECT_FROM * k:
        return scores.topk(k, sorted=ordered)
    # Members are num_groups apart: the maximum runs along whole rows.
    maxima = scores.view(-1, _GROUP_SIZE, num_groups).amax(dim=1)
    groups = _top_k(maxima, k, ordered=False)[1]
    columns = torch.cat([groups + i * num_groups for i in range(_GROUP_SIZE)], dim=1)
    best, places = scores.gather(1, columns).topk(k, sorted=ordered)
    return best, columns.gather(1, places)
