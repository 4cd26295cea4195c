"""Weights of positives by their rank, for sums over pairs."""

import torch
from torch import Tensor

from .surrogates import Surrogate


def practical_weight(x: Tensor, a: float = 0.1, t: float = 2.0) -> Tensor:
    """``((1 + a)/(x + a))^t`` of smoothed ranks x in [0, 1]: stable AP (2025), eq. 4."""
    return ((1 + a) / (x + a)) ** t


def smoothed_rank(
    pos: Tensor, mean_pos: Tensor | float, surrogate: Surrogate, bound: float
) -> Tensor:
    """Rank of a positive from the mean positive score mu: ``l(s_i - mu)/B``, clamped to [0, 1].

    0 for a positive far above mu. The clamp covers scores outside the range for which B was
    declared, such as detector logits. Source: stable AP (2025), section 4.2.
    """
    return (surrogate(pos - mean_pos) / bound).clamp(0, 1)


def mean_one(weight: Tensor, mask: Tensor | None = None) -> Tensor:
    """(L, P) weights over their mean, so that ``1/n+ sum_i w_i = 1`` in each list.

    Why stable AP divides: theorem 1's weights sum to between n+ and about 1.3 n+ (lemma 3), and
    step (b) of its proof divides by their sum,

    ``mean_i htilde(rho l_i/r_i) <= S h(rho/n+ sum_i (w_i/S) l_i)`` with ``S = 1/n+ sum_i w_i``,

    because ``sum_i w_i (.)/sum_i w_i`` is a mean, to which Jensen's inequality applies. So the
    weights inside h have mean 1. Equation 4 is meant to be of that order, but its weights have a
    mean of 50 to 120 for ``a = 0.1, t = 2``, as the smoothed ranks are near 0; undivided, they make
    h flat.
    """
    if mask is None:
        count = torch.full_like(weight[:, :1], weight.size(1))
    else:
        count = mask.sum(1, keepdim=True).to(weight.dtype)
    total = weight.sum(1, keepdim=True)
    return weight * torch.where(count > 0, count / total, 0)
