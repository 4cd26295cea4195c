"""How many scores of a row reach each of the row's thresholds, exactly.

Sorting a row of a gallery costs several times the matrix product that made it, and a rank needs
less: only the scores at or above a positive are counted. Few thresholds are compared one after the
other. Many are looked up in uniform bins; only scores that share a bin with a threshold are sorted.
"""

import torch
from torch import Tensor

# Comparisons read the row once per threshold, bins about this many times.
_MOST_COMPARISONS = 16
# Scores that a CPU counts at once: what fits its cache.
_IN_CACHE = 2**18
# Bytes of temporary tensors per score, all of a row's scores sharing a bin.
BYTES_PER_SCORE = 64


def count_rows_at_or_above(scores: Tensor, thresholds: Tensor) -> Tensor:
    """(B, P) int64 numbers of the (B, W) scores that are >= each threshold of their row.

    Batched ``count_at_or_above``. The scores have no NaN and no +inf; -inf is left out. Thresholds
    are +inf, and counts 0, where a row has fewer than P; one is finite.
    """
    if scores.device.type != 'cpu':
        return _count(scores, thresholds)
    rows = max(_IN_CACHE // max(scores.size(1), 1), 1)
    parts = zip(scores.split(rows), thresholds.split(rows))
    return torch.cat([_count(*x) for x in parts])


def _count(scores: Tensor, thresholds: Tensor) -> Tensor:
    if thresholds.size(1) <= _MOST_COMPARISONS:
        return _count_by_comparing(scores, thresholds)
    if scores.dtype == torch.float32:
        return _count_by_bins(scores, thresholds)
    ordered = scores.sort(1).values
    return scores.size(1) - torch.searchsorted(ordered, thresholds.contiguous())


def _count_by_comparing(scores: Tensor, thresholds: Tensor) -> Tensor:
    # A CPU writes ones and zeros of the scores' own type four times as fast as bools, a GPU reads
    # bools four times as fast.
    dtype = scores.dtype if scores.device.type == 'cpu' else torch.bool
    reached = torch.empty_like(scores, dtype=dtype, memory_format=torch.contiguous_format)
    counts = [row_counts(torch.ge(scores, x, out=reached)) for x in thresholds.split(1, dim=1)]
    return torch.stack(counts, dim=1)


def row_counts(reached: Tensor) -> Tensor:
    """Exact number of ones in each row of (B, W) bools, or of ones and zeros as floats."""
    if reached.is_floating_point() and reached.size(1) > 2**24:
        return reached.sum(1, dtype=torch.float64).long()
    return reached.sum(1).long()


def _count_by_bins(scores: Tensor, thresholds: Tensor) -> Tensor:
    rows, width = scores.shape
    bins = max(2048, min(16 * thresholds.size(1), width))
    low = thresholds.amin(1, keepdim=True)
    span = scores.amax(1, keepdim=True) - low
    # Any positive factor is correct: the map need only be non-decreasing.
    factor = torch.where(span > 0, (bins - 2) / span, torch.ones_like(span))
    factor = factor.clamp(max=torch.finfo(scores.dtype).max)

    def bin_of(x: Tensor) -> Tensor:
        x = (x - low).mul_(factor).add_(1)
        return x.clamp_(0, bins - 1).to(torch.int64)

    of_score = bin_of(scores)
    of_threshold = bin_of(thresholds)
    shared = torch.zeros(rows, bins, dtype=torch.bool, device=scores.device)
    shared.scatter_(1, of_threshold, True)
    filled = torch.zeros(rows, bins, dtype=torch.int32, device=scores.device)
    one = filled.new_ones(1, 1).expand(rows, width)
    filled.scatter_add_(1, of_score, one).masked_fill_(shared, 0)
    # All scores in a bin without a threshold are above a threshold, or all are below.
    up_to = filled.cumsum(1, dtype=torch.int32)
    above = (up_to[:, -1:] - up_to.gather(1, of_threshold)).long()

    row, column = shared.gather(1, of_score).nonzero(as_tuple=True)
    del of_score
    keys = _row_and_score(row, scores[row, column]).sort().values
    of_row = torch.arange(rows, device=scores.device)[:, None]
    wanted = _row_and_score(of_row, thresholds)
    end = torch.searchsorted(keys, of_row[:, 0] + 1 << 32)
    below = torch.searchsorted(keys, wanted.flatten()).view_as(wanted)
    # A padding threshold of +inf lies behind its row's last key: 0.
    return above + end[:, None] - below


def _row_and_score(row: Tensor, score: Tensor) -> Tensor:
    """int64 that orders by row, then by float32 score, -0.0 equal to 0.0."""
    bits = (score + 0.0).view(torch.int32)
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    return (row << 32) + (ordered + 2**31)
