"""LambdaLoss: pairs weighted by what their exchange changes in NDCG."""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from mmrank.losses.lists import RankedLists
from mmrank.losses.pairs import given_gradient
from mmrank.losses.pairs_graded import graded_pairs
from mmrank.settings import check_positive, one_of

from .hierarchical import LevelLoss, gains, graded_entries

#: Factors of the weights by the distance of two places and by their discounts.
_SCHEMES = {'lambdarank': (0, 1), 'ndcg_loss2': (1, 0), 'ndcg_loss2++': (10, 1)}


class LambdaLoss(LevelLoss):
    """LambdaLoss: logistic loss of each pair of levels, weighted by NDCG.

    ``sum_{l_i > l_j} (mu delta_ij + rho_ij) (G_i - G_j) log2(1 + exp((s_j - s_i) / tau))`` with the
    gains ``G = (2^l - 1) / best DCG``, ``rho_ij = |1/D(r_i) - 1/D(r_j)|`` and ``delta_ij = |1/D(d)
    - 1/D(d + 1)|``, ``d = |r_i - r_j|``, of the ranks r by the scores, with ``D(r) = log2(1 + r)``.
    The weights are constants. The mean is over the lists. Source: Wang et al., The LambdaLoss
    Framework for Ranking Metric Optimization, CIKM 2018: LambdaRank, NDCG-Loss2 and NDCG-Loss2++.

    Among equal scores the lowest level ranks first, and entries of one level share their mean rank.
    Every pair of a list is compared, in blocks.

    Args:
        scheme: ``ndcg_loss2++`` has mu = 10, ``lambdarank`` 0; ``ndcg_loss2`` is delta alone.
        tau: Temperature in units of the scores, > 0; 1 over the paper's sigma.
    """

    def __init__(self, scheme: str = 'ndcg_loss2++', tau: float = 1.0, **kwargs) -> None:
        super().__init__(**kwargs)
        one_of('scheme', scheme, _SCHEMES)
        check_positive(tau=tau)
        self.factors = _SCHEMES[scheme]
        self.tau = tau

    def losses(self, lists: RankedLists) -> Tensor:
        scores, level, counts = graded_entries(lists)
        total, slope = self._sums(scores, level, counts, lists.on_host)
        return given_gradient(total, (scores, slope))

    @torch.no_grad()
    def _sums(
        self, scores: Tensor, level: Tensor, counts: Tensor, on_host: bool
    ) -> tuple[Tensor, Tensor]:
        """(L,) sums over the pairs, and (L, M) slopes by the scores."""
        places = torch.arange(1, scores.size(1) + 1, device=scores.device).double()
        gain = gains(level)
        best = (gain.sort(1, descending=True).values / _discount(places)).sum(1, keepdim=True)
        gain = gain / torch.where(best > 0, best, 1)
        rank = _ranks(scores, level, counts)
        by_distance, by_discount = self.factors
        total = gain.new_zeros(len(gain))
        slope = torch.zeros_like(gain)
        for rows, weight, x in graded_pairs(scores, counts, gain, on_host):
            own = rank[:, rows, None]
            others = rank[:, None]
            # Where two share a rank, they have the same gain.
            distance = (own - others).abs().clamp(min=1)
            delta = 1 / _discount(distance) - 1 / _discount(distance + 1)
            rho = (1 / _discount(own) - 1 / _discount(others)).abs()
            weight *= (by_distance * delta + by_discount * rho) / math.log(2)
            x /= self.tau
            total += (weight * softplus(-x)).sum((1, 2))
            change = weight * (-x).sigmoid() / self.tau
            slope[:, rows] -= change.sum(2)
            slope += change.sum(1)
        return total, slope


def _discount(rank: Tensor) -> Tensor:
    return (1 + rank).log2()


def _ranks(scores: Tensor, level: Tensor, counts: Tensor) -> Tensor:
    """(L, M) float64 ranks from 1 on; what does not count is behind all."""
    falling = torch.where(counts > 0, -scores.double(), torch.inf)
    above = torch.searchsorted(falling.sort(1).values, falling)
    # Levels of a list are below this step.
    key = above * (1 + level.sum(1, keepdim=True)) + level
    ordered = key.sort(1).values
    first = torch.searchsorted(ordered, key)
    last = torch.searchsorted(ordered, key, right=True)
    return (first + last + 1).double() / 2
