"""The 0-1 pair loss as a surrogate, and the exact AP risk of many lists."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.functional import Surrogate


@dataclass(frozen=True)
class ZeroOne(Surrogate):
    """``l01(x) = 1 if x <= 0 else 0``, which the surrogates approximate.

    With it a loss shows what its estimator does, apart from what its surrogates do. It has no
    gradient, so it trains nothing.
    """

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        if slopes is not None:
            slopes.zero_()
        return (x <= 0).to(x.dtype) if values else None


def lists_of(pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
    """(L, P) positives and (L, N) negatives as scores and ``is_positive`` of a ranking function."""
    is_positive = torch.cat([torch.ones_like(pos), torch.zeros_like(neg)], 1).bool()
    return torch.cat([pos, neg], 1), is_positive


def count_at_or_above(queries: Tensor, scores: Tensor) -> Tensor:
    """Number of ``scores`` that are >= each query, in each of L lists.

    Args:
        queries: (L, P) scores to rank.
        scores: (L, N) scores to be ranked among.

    Returns:
        (L, P) counts, float64.
    """
    ordered = scores.sort(dim=1).values
    below = torch.searchsorted(ordered, queries.contiguous())
    return (scores.size(1) - below).double()


def ap_risk(pos: Tensor, neg: Tensor) -> Tensor:
    """``1 - AP`` of L lists, ties counted by l01.

    Source: stable AP (2025), section 3.1.

    Args:
        pos: (L, P) scores of the positives, P >= 1.
        neg: (L, N) scores of the negatives.

    Returns:
        (L,) risks in [0, 1), float64.
    """
    negatives = count_at_or_above(pos, neg)
    positives = count_at_or_above(pos, pos)
    return (negatives / (negatives + positives)).mean(1)
