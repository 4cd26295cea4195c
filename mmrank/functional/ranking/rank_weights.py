"""Weights of the positives in the stable AP loss.

A positive high in the ranking weighs more: average precision depends most on the head of the list.
"""

import torch
from torch import Tensor

from mmrank.functional.metrics.average_precision import count_at_or_above
from mmrank.losses.pairs.surrogates import Surrogate


def normalised_positive_rank(pos: Tensor) -> Tensor:
    """Rank of each positive among the positives, over their number.

    Rank 1 is the top; ties are counted by ``l01``, so equal scores share the larger rank. Source:
    stable AP (2025), ``r_i`` of eq. 1.

    Args:
        pos: (n+,) scores of the positives.

    Returns:
        (n+,) ranks in ``(0, 1]``, in the dtype of ``pos``, at least float32.
    """
    dtype = torch.promote_types(pos.dtype, torch.float32)
    pos = pos.detach().to(dtype)
    return count_at_or_above(pos, pos).to(dtype) / max(pos.numel(), 1)


def theorem1_weight(rank: Tensor, rho: float | Tensor, bound: float) -> Tensor:
    """Weight for which the stable AP risk bounds the AP risk.

    ``0.5 (r - r^2)^(-1/2)`` for ``0 < r <= 1/2`` and ``(1 + rho B)/(r + rho B)`` for ``1/2 < r <=
    1``. Source: stable AP (2025), theorem 1.

    Args:
        rank: Normalised ranks in ``(0, 1]``, any shape.
        rho: Imbalance n-/n+, > 0.
        bound: Largest value B of the surrogate on the score range, > 0.

    Returns:
        Weights > 0, same shape as ``rank``.
    """
    upper = (1 + rho * bound) / (rank + rho * bound)
    head = rank.clamp(max=0.5)
    return torch.where(rank <= 0.5, 0.5 * (head - head.square()).rsqrt(), upper)


def practical_weight(x: Tensor, a: float = 0.1, t: float = 2.0) -> Tensor:
    """``((1 + a)/(x + a))^t``, the smooth weight that training uses.

    Source: stable AP (2025), eq. 4.

    Args:
        x: Smoothed ranks in ``[0, 1]``, any shape.
        a: Offset > 0: caps the weight at ``((1 + a)/a)^t``.
        t: Power >= 0: 0 weighs all positives alike.

    Returns:
        Weights in ``[1, ((1 + a)/a)^t]``, same shape as ``x``.

    Raises:
        ValueError: If ``a <= 0`` or ``t < 0``.
    """
    if not a > 0:
        raise ValueError(f'a must be > 0, got {a!r}')
    if not t >= 0:
        raise ValueError(f't must be >= 0, got {t!r}')
    return ((1 + a) / (x + a)) ** t


def smoothed_rank(
    pos: Tensor, mean_pos: Tensor | float, surrogate: Surrogate, bound: float
) -> Tensor:
    """Estimate of a positive's rank from the mean positive score alone.

    ``l(s_i - mu)/B`` clamped to ``[0, 1]``: 0 for a positive far above the mean positive score.
    Source: stable AP (2025), section 4.2. The clamp covers scores outside the range for which
    ``bound`` was declared, such as unbounded detector logits.

    Args:
        pos: Scores of the positives, any shape.
        mean_pos: Mean positive score mu, broadcastable to ``pos``.
        surrogate: The pair surrogate l.
        bound: Its largest value B on the declared score range, > 0.

    Returns:
        Smoothed ranks in ``[0, 1]``, same shape as ``pos``.

    Raises:
        ValueError: If ``bound <= 0``.
    """
    if not bound > 0:
        raise ValueError(f'bound must be > 0, got {bound!r}')
    return (surrogate(pos - mean_pos) / bound).clamp(0, 1)


def mean_one(weight: Tensor, mask: Tensor | None = None) -> Tensor:
    """Weights over their mean, so that ``1/n+ sum_i w_i = 1`` in each list.

    Why stable AP divides: theorem 1's weights sum to between n+ and about
    1.3 n+ (lemma 3), and step (b) of its proof divides by their sum,

    ``mean_i htilde(rho l_i/r_i) <= S h(rho/n+ sum_i (w_i/S) l_i)`` with
    ``S = 1/n+ sum_i w_i``,

    because ``sum_i w_i (.)/sum_i w_i`` is a mean, to which Jensen's
    inequality applies. So the weights inside h have mean 1. Equation 4 is meant to be of that
    order, but its weights have a mean of 50 to 120 for
    ``a = 0.1, t = 2``, as the smoothed ranks are near 0; undivided, they
    make h flat.

    Args:
        weight: (L, P) weights >= 0, 0 at padding.
        mask: (L, P) bool, False for padding. None: no padding.

    Returns:
        (L, P) weights of mean 1 in each list; 0 in a list without positives.
    """
    if mask is None:
        count = torch.full_like(weight[:, :1], weight.size(1))
    else:
        count = mask.sum(1, keepdim=True).to(weight.dtype)
    total = weight.sum(1, keepdim=True)
    return weight * torch.where(count > 0, count / total, 0)
