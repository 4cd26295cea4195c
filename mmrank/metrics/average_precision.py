"""Exact average precision, the ranks it is made of, and area under ROC."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmrank.errors import UserError
from mmrank.settings import check_within
from mmrank.tensors import (
    at_least_float32,
    check_floats,
    check_tensors,
    checked_weight,
    refuse_swapped,
    require_numbers,
    zeros_and_ones,
)


def count_at_or_above(queries: Tensor, scores: Tensor, weight: Tensor | None = None) -> Tensor:
    """Number of (m,) scores that are >= each of (n,) queries, (n,) int64, by one sort.

    This is ``sum_j l01(q_i - s_j)``: a tie counts as ranked above. With (m,) float64 weights of the
    scores it is the sum of their weights.
    """
    ordered, order = scores.sort()
    below = torch.searchsorted(ordered, queries.contiguous(), right=False)
    count = scores.numel() - below
    return count if weight is None else _running_sum(weight[order.flip(0)])[count]


def _running_sum(weight: Tensor) -> Tensor:
    """(n + 1,) sums of the first 0, 1, ... of (n,) weights."""
    return pad(weight.cumsum(0), (1, 0))


def _counted(
    scores: Tensor, labels: Tensor, weight: Tensor | None, name: str = 'is_positive'
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scores, labels and float64 weights of the entries that count, if they fit; else an error."""
    refuse_swapped('scores', scores, labels)
    check_floats(scores=scores)
    check_tensors(**{name: labels})
    if scores.dim() != 1 or scores.shape != labels.shape:
        raise UserError(
            f'scores and {name} must be 1-D of one length, got shapes {tuple(scores.shape)} and '
            f'{tuple(labels.shape)}. Fix: of (n, C) scores, for each c scores[:, c] and {name}[:, '
            f'c]; of one ranking of all scores.flatten() and {name}.flatten()'
        )
    scores = scores.detach()
    if weight is None:
        return scores, labels, None
    kept = checked_weight('weight', weight, tuple(scores.shape)) > 0
    return scores[kept], labels[kept], weight.detach()[kept].double()


def _checked(
    scores: Tensor, is_positive: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(n,) scores, at least float32, (n,) bool of their labels and their weights."""
    scores, is_positive, weight = _counted(scores, is_positive, weight)
    fix = (
        'is_positive > 0 if these are positives; weight=is_known leaves out scores without a label'
    )
    return at_least_float32(scores), zeros_and_ones('is_positive', is_positive, fix), weight


def average_precision(
    scores: Tensor, is_positive: Tensor, *, weight: Tensor | None = None
) -> Tensor:
    """Exact average precision of one list.

    ``AP = mean_i rank+_i / rank_i`` over the positives, where both ranks count a tie as ranked
    above (``l01(0) = 1``), so a positive that ties with negatives gets no credit for the order in
    which they happen to be sorted. ``1 - AP`` is the AP risk of stable AP (2025), section 3.

    Args:
        scores: (n,) float scores.
        is_positive: (n,) bool, or 0 and 1.
        weight: (n,) finite numbers >= 0: an entry of weight w counts as w entries, as in
            scikit-learn's ``sample_weight``; one of 0 is not looked at. None: each counts once.

    Returns:
        Scalar in [0, 1], float64 for float64 scores and float32 otherwise;
        NaN when the list has no positive or a score is NaN.

    Example:
        >>> average_precision(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([1, 0, 1]))
        tensor(0.8333)
    """
    scores, is_positive, weight = _checked(scores, is_positive, weight)
    pos = scores[is_positive]
    own = None if weight is None else weight[is_positive]
    above = count_at_or_above(pos, scores, weight)
    above_pos = count_at_or_above(pos, pos, own)
    precision = above_pos.double() / above.double()
    ap = precision.mean() if own is None else (own * precision).sum() / own.sum()
    return torch.where(scores.isnan().any(), ap.new_tensor(float('nan')), ap).to(scores.dtype)


def auroc(scores: Tensor, is_positive: Tensor, *, weight: Tensor | None = None) -> Tensor:
    """Exact area under the ROC curve of one list.

    The share of pairs of a positive and a negative in which the positive is higher; a tie counts
    one half. Two sorts, no matrix of pairs. See :func:`average_precision` for the arguments and
    result; NaN also without a negative.

    Example:
        >>> auroc(torch.tensor([0.9, 0.8, 0.7, 0.7]), torch.tensor([1, 0, 1, 0]))
        tensor(0.6250)
    """
    scores, is_positive, weight = _checked(scores, is_positive, weight)
    pos = scores[is_positive]
    neg, order = scores[~is_positive].sort()
    below = torch.searchsorted(neg, pos)
    not_above = torch.searchsorted(neg, pos, right=True)
    if weight is None:
        wins = (below + not_above).double().sum() / 2
        area = wins / (pos.numel() * neg.numel() or torch.nan)
    else:
        own = weight[is_positive]
        lower = _running_sum(weight[~is_positive][order])
        wins = (own * (lower[below] + lower[not_above])).sum() / 2
        area = wins / (own.sum() * lower[-1])
    return torch.where(scores.isnan().any(), torch.nan, area).to(scores.dtype)


def partial_auroc(
    scores: Tensor,
    is_positive: Tensor,
    *,
    max_fpr: float = 1.0,
    min_tpr: float = 0.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Exact area under the ROC curve left of a false positive rate and above a true positive rate.

    As a share of the rectangle ``max_fpr * (1 - min_tpr)``; the curve is straight between distinct
    scores, as in scikit-learn. Without ties, and where the rates are whole numbers of samples, this
    is :func:`auroc` of the highest negatives and the lowest positives. The arguments and result are
    the same, with ``max_fpr`` in (0, 1] and ``min_tpr`` in [0, 1); above 0 it is two-way partial
    AUC.

    Example:
        >>> partial_auroc(torch.tensor([0.9, 0.8, 0.7, 0.6]),
        ...               torch.tensor([1, 0, 1, 0]), max_fpr=0.5)
        tensor(0.5000)
    """
    scores, is_positive, weight = _checked(scores, is_positive, weight)
    check_within('(0, 1]', max_fpr=max_fpr)
    check_within('[0, 1)', min_tpr=min_tpr)
    steps = scores.unique().flip(0)
    rates = []
    for side in (is_positive, ~is_positive):
        own = None if weight is None else weight[side]
        total = (int(side.sum()) or torch.nan) if own is None else own.sum()
        count = count_at_or_above(steps, scores[side], own).double()
        rates.append(pad(count / total, (1, 0)))
    tpr, fpr = rates
    # Each segment of the curve from where it is above min_tpr to where it is at max_fpr.
    rise = tpr.diff()
    run = fpr.diff()
    begin = ((min_tpr - tpr[:-1]) / rise.where(rise > 0, 1)).clamp(min=0)
    end = ((max_fpr - fpr[:-1]) / run.where(run > 0, 1)).clamp(max=1)
    inside = (tpr[1:] > min_tpr) & (begin < end)
    height = tpr[:-1] + rise * (begin + end) / 2 - min_tpr
    area = (inside * height * run * (end - begin)).sum() / (max_fpr * (1 - min_tpr))
    broken = fpr.isnan().any() | tpr.isnan().any() | scores.isnan().any() | (not len(scores))
    return torch.where(broken, torch.nan, area).to(scores.dtype)


def _check_gains(name: str, gains: Tensor) -> None:
    """Raise ValueError for a gain below 0, such as the -1 of padding."""
    fix = '0 for what is not relevant; padding has scores of -inf and 0 here'
    require_numbers(name, gains, ~(gains < 0), '>= 0', fix)


def ndcg(scores: Tensor, gain: Tensor, k: int | None = None) -> Tensor:
    """Exact NDCG@k of one list, or of several, such as the labels of each sample.

    The sum over the first k of ``gain / log2(1 + place)``, divided by the sum of the best order.
    Among ties lower gains come first.

    Args:
        scores: (N,) or (L, N) float scores.
        gain: Gains >= 0 of the same shape, bool or numbers.
        k: Places that count, >= 1. None: all.

    Returns:
        Scalar or (L,) in [0, 1], float64; NaN for a list without a gain or with a NaN.

    Example:
        >>> ndcg(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0, 1, 1]), k=2)
        tensor(0.3869, dtype=torch.float64)
    """
    refuse_swapped('scores', scores, gain)
    check_floats(scores=scores)
    check_tensors(gain=gain)
    if scores.dim() not in (1, 2) or scores.shape != gain.shape or (k is not None and k < 1):
        raise ValueError(
            'scores and gain must be (N,) or (lists, N) of one shape and k >= 1, got shapes '
            f'{tuple(scores.shape)} and {tuple(gain.shape)}, k={k!r}'
        )
    _check_gains('gain', gain)
    best = gain.double().sort(-1).values
    lower_first = gain.double().argsort(-1)
    order = scores.gather(-1, lower_first).argsort(dim=-1, descending=True, stable=True)
    found = best.gather(-1, order)
    place = torch.arange(2, scores.size(-1) + 2, device=scores.device).double().log2()
    share = (found / place)[..., :k].sum(-1) / (best.flip(-1) / place)[..., :k].sum(-1)
    return torch.where(scores.isnan().any(-1), torch.nan, share)


def graded_average_precision(
    scores: Tensor,
    relevance: Tensor,
    *,
    num_objects: float | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """Exact average precision with a relevance u of each score.

    ``GAP = 1/G sum_i 1/rank_i sum_{j at or above i} min(u_i, u_j)``, ties as in
    :func:`average_precision`, which it is for a relevance of 0 and 1. With one detection of each
    object and u the share of COCO's IoU thresholds that it reaches, GAP is the mean over the
    thresholds of AP. Source: Robertson et al., Extending Average Precision to Graded Relevance
    Judgments, SIGIR 2010, with this normaliser.

    The time is a sort's and, for the P scores with u > 0, P times the number of distinct u.

    Args:
        scores: (n,) float scores.
        relevance: (n,) numbers >= 0; usually in [0, 1].
        num_objects: G, such as the number of objects with those that have no detection. None: the
            number of scores with u > 0, or the sum of their weights.
        weight: (n,), as in :func:`average_precision`.

    Returns:
        Scalar, as :func:`average_precision`; NaN where G is 0 or a score or a relevance is NaN.

    Example:
        >>> graded_average_precision(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0.5, 0.0, 1.0]))
        tensor(0.5000)
    """
    scores, relevance, weight = _counted(scores, relevance, weight, 'relevance')
    _check_gains('relevance', relevance)
    scores = at_least_float32(scores)
    grades = relevance.detach().double()
    real = grades > 0
    pos = scores[real]
    grades = grades[real]
    own = torch.ones_like(grades) if weight is None else weight[real]
    rank = count_at_or_above(pos, scores, weight).double()
    order = pos.argsort(descending=True)
    pos, grades, rank, own = (x[order] for x in (pos, grades, rank, own))
    # Ascending, the last of those that tie.
    end = count_at_or_above(pos, pos) - 1
    steps = torch.cat([grades.new_zeros(1), grades.unique()])
    total = torch.zeros_like(grades)
    size = max(2**20 // max(len(pos), 1), 1)
    for levels, gaps in zip(steps[1:].split(size), steps.diff().split(size)):
        reached = grades >= levels[:, None]
        above = (reached * own).cumsum(1)[:, end]
        total += (gaps[:, None] * (reached * above)).sum(0)
    count = own.sum() if num_objects is None else num_objects
    gap = (own * total / rank).sum() / torch.as_tensor(count, device=pos.device).double()
    broken = scores.isnan().any() | relevance.isnan().any()
    return torch.where(broken, float('nan'), gap).to(scores.dtype)
