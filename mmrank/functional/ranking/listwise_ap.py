"""List-wise AP: average precision of a soft histogram of the scores."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mmrank.distributed import all_reduce_sum

from .lists import block_width, ranking_function, score_lists


def check_bins(num_bins: int, score_range: tuple[float, float]) -> None:
    """Refuse a histogram that is none.

    Raises:
        ValueError: If there are less than 2 bins or the range is empty.
    """
    if num_bins < 2:
        raise ValueError(f'num_bins must be >= 2, got {num_bins!r}')
    low, high = score_range
    if not float('-inf') < low < high < float('inf'):
        raise ValueError(f'score_range must be finite with low < high, got ({low!r}, {high!r})')


def soft_histogram(
    scores: Tensor, mask: Tensor, num_bins: int, score_range: tuple[float, float]
) -> Tensor:
    """Share every score out to the two bins beside it.

    Bin m has its centre at ``high - m (high - low) / (num_bins - 1)``. A
    score between two centres counts for both, linearly; one outside of the range counts for the
    last bin on its side. Source: Revaud et al. (ICCV 2019), eq. 5, without its pass over all bins.

    Args:
        scores: (L, N) float scores.
        mask: (L, N) bool, False for what does not count.
        num_bins: Number of bins, >= 2.
        score_range: Centres of the last and of the first bin.

    Returns:
        (L, num_bins) float64, from the highest scores to the lowest; differentiable in ``scores``,
        with gradient 0 outside of the range.
    """
    width = block_width(scores.size(0))
    if scores.size(1) <= width:
        return _histogram(scores, mask, num_bins, score_range)
    # What the gradient needs of a block is computed again: for all scores at once it would take ten
    # times their memory.
    return sum(
        checkpoint(_histogram, *part, num_bins, score_range, use_reentrant=False)
        for part in zip(scores.split(width, 1), mask.split(width, 1))
    )


def _histogram(
    scores: Tensor, mask: Tensor, num_bins: int, score_range: tuple[float, float]
) -> Tensor:
    low, high = score_range
    width = (high - low) / (num_bins - 1)
    place = (high - scores.double().clamp(low, high)) / width
    with torch.no_grad():
        first = place.nan_to_num(0).long().clamp(max=num_bins - 2)
    share = place - first
    histogram = share.new_zeros(scores.size(0), num_bins)
    histogram = histogram.scatter_add(1, first, torch.where(mask, 1 - share, 0))
    return histogram.scatter_add(1, first + 1, torch.where(mask, share, 0))


@ranking_function
def listwise_ap_loss(
    pos: Tensor,
    neg: Tensor,
    *,
    num_bins: int = 20,
    score_range: tuple[float, float] = (-1.0, 1.0),
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    group=None,
) -> Tensor:
    """List-wise AP loss.

    ``1 - sum_m h+_m/n+ * H+_m/H_m``: h+ is the soft histogram of the positives, H+ and H are the
    running sums of those of the positives and of all scores, from the highest bin down. Source:
    Revaud et al., Learning
    with Average Precision: Training Image Retrieval with a Listwise Loss,
    ICCV 2019, eqs. 5 to 8. With ``num_bins=k + 1`` and cosines this is FastAP (Cakir et al., CVPR
    2019) with k bins.

    Args:
        pos: (P,) or padded (L, P) scores of the positives.
        neg: (N,) or (L, N) scores of the negatives.
        num_bins: Number of bins, >= 2.
        score_range: Centres of the last and of the first bin; scores outside count there and have
            no gradient.
        pos_mask: (L, P) bool, False for padding. None: all are real.
        neg_mask: (L, N) bool, False for what is no negative. None: all are.
        group: Process group over which the negatives are spread; ``pos`` must then hold the
            positives of all ranks.

    Returns:
        Scalar, or (L,) float64 losses, in [0, 1]; 0, still attached to the graph, for a list
        without positives. Time and memory do not grow with ``num_bins`` times the scores.

    Raises:
        ValueError: On a parameter out of range or shapes that do not fit.
        TypeError: If a score tensor is not of a float dtype.

    Example:
        >>> pos, neg = torch.tensor([0.9, 0.2]), torch.tensor([0.5, -0.5])
        >>> listwise_ap_loss(pos, neg, num_bins=21)
        tensor(0.1667)
    """
    check_bins(num_bins, score_range)
    if neg_mask is None:
        neg_mask = torch.ones_like(neg, dtype=torch.bool)
    own = soft_histogram(pos, pos_mask, num_bins, score_range)
    others = soft_histogram(neg, neg_mask, num_bins, score_range)
    others = all_reduce_sum(others, group)
    above = others.cumsum(1)
    total = own.cumsum(1) + above
    # The positives of a bin times the share of negatives down to it: the histogram of the positives
    # sums to n+, so this is 1 - AP.
    share = above / torch.where(total == 0, 1, total)
    return (own * share).sum(1) / pos_mask.sum(1).clamp(min=1)


listwise_ap_lists = score_lists(listwise_ap_loss)
"""``listwise_ap_loss`` of each row of scores; see ``score_lists``."""
