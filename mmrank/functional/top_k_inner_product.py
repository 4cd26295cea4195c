"""The right entities of the largest inner products."""

import torch
from torch import Tensor

#: Scores held at a time.
_MAX_SCORES = 1 << 20


def top_k_inner_product(
    left: Tensor,
    right: Tensor,
    k: int,
    excluded_rows: Tensor,
    excluded_cols: Tensor,
    max_scores: int = _MAX_SCORES,
) -> Tensor:
    """Find the k best right entities of each left one, some left out.

    Args:
        left: (B, D) floats.
        right: (n, D) floats.
        k: How many.
        excluded_rows: (E,) integers in ``[0, B)``, ascending: together with
            ``excluded_cols`` the pairs to leave out.
        excluded_cols: (E,) integers in ``[0, n)``.
        max_scores: Scores held at a time, which bounds the memory; at least
            the n of one left entity are.

    Returns:
        (B, k) int64, best first; -1 where there are fewer than k to choose
        from. Ties come in any order, NaN first.

    Raises:
        ValueError: If ``k`` is not positive or the rows do not ascend.
    """
    if k < 1:
        raise ValueError(f'k must be at least 1, got {k}')
    if not bool((excluded_rows[1:] >= excluded_rows[:-1]).all()):
        raise ValueError('excluded_rows must ascend; sort the excluded pairs')
    dtype = torch.promote_types(left.dtype, torch.float32)
    left, right = left.to(dtype), right.to(dtype).t()
    block = max(1, max_scores // max(1, right.size(1)))
    begins = list(range(0, len(left), block))
    bounds = torch.tensor([*begins, len(left)], device=excluded_rows.device)
    bounds = torch.searchsorted(excluded_rows, bounds).tolist()
    result = left.new_full((len(left), k), -1, dtype=torch.long)
    with torch.autocast(left.device.type, enabled=False):
        for begin, start, stop in zip(begins, bounds, bounds[1:]):
            scores = left[begin : begin + block] @ right
            rows = excluded_rows[start:stop] - begin
            scores[rows, excluded_cols[start:stop]] = -torch.inf
            best, cols = scores.topk(min(k, scores.size(1)))
            cols = torch.where(best == -torch.inf, -1, cols)
            result[begin : begin + block, : cols.size(1)] = cols
    return result
