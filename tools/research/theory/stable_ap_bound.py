"""How tight theorem 1 of stable AP (2025) is, on random and on bad lists."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mmrank.functional import (
    OneSidedHuber,
    mean_one,
    pairwise_surrogate_sum,
    stable_ap_outer,
    theorem1_weight,
)
from research.theory.ap_risk import ap_risk, count_at_or_above

# Cosine scores.
SCORE_RANGE = (-1.0, 1.0)


class Theorem1Sides(NamedTuple):
    """The quantities of theorem 1, (L,) each; the first four ascend.

    Attributes:
        risk: ``1 - AP``.
        surrogate_risk: ``mean_i htilde(rho l_i / r_i)``.
        weighted: ``S h(rho/n+ sum_i (w_i/S) l_i)`` with ``S`` the mean of
            the weights (step b of the proof): the form that is trained.
        bound: ``q/2 h(rho/n+ sum_i w(r_i) l_i)``.
        jensen: ``htilde(rho/n+ sum_i l_i / r_i)`` (eq. 3), another bound of ``surrogate_risk`` that
            the paper turns down.
    """

    risk: Tensor
    surrogate_risk: Tensor
    weighted: Tensor
    bound: Tensor
    jensen: Tensor


def theorem1_sides(pos: Tensor, neg: Tensor, tau: float, eps: float) -> Theorem1Sides:
    """Evaluate theorem 1 on L lists.

    Source: stable AP (2025), theorem 1, with exponent +1/2 in h.

    Args:
        pos: (L, P) scores of the positives in [-1, 1], P even.
        neg: (L, N) scores of the negatives in [-1, 1], N >= 1.
        tau: Margin of the one-sided Huber surrogate, > 0.
        eps: Smoothing of h, > 0.

    Returns:
        The sides, float64.
    """
    num_pos, num_neg = pos.size(1), neg.size(1)
    rho = num_neg / num_pos
    surrogate = OneSidedHuber(tau)
    largest = surrogate.bound(*SCORE_RANGE)
    mean = pairwise_surrogate_sum(pos, neg, surrogate) / num_neg
    rank = count_at_or_above(pos, pos) / num_pos
    x = rho * mean / rank
    weight = theorem1_weight(rank, rho, largest)
    risk_of = rho * (mean_one(weight) * mean).mean(1)
    return Theorem1Sides(
        risk=ap_risk(pos, neg),
        surrogate_risk=(x / (1 + x)).mean(1),
        weighted=weight.mean(1) * stable_ap_outer(risk_of, eps),
        bound=half_q(rho * largest) * stable_ap_outer(rho * (weight * mean).mean(1), eps),
        jensen=1 - 1 / (1 + x.mean(1)),
    )


def half_q(rho_bound: float) -> float:
    """``q/2 = pi/4 + (1 + rho B)/(1 + 2 rho B)`` of theorem 1."""
    return math.pi / 4 + (1 + rho_bound) / (1 + 2 * rho_bound)


@dataclass(frozen=True)
class BoundRow:
    """Largest ratios of the sides of theorem 1 that were found.

    Attributes:
        rho: Negatives per positive.
        num_pos: Positives of a list.
        num_lists: Random lists.
        random_risk: ``risk / surrogate_risk`` on random lists.
        random_bound: ``surrogate_risk / bound`` on random lists.
        worst_risk: The same ratios on lists that were changed to raise them.
        worst_bound: See ``worst_risk``.
    """

    rho: float
    num_pos: int
    num_lists: int
    random_risk: float
    random_bound: float
    worst_risk: float
    worst_bound: float


def bound_rows(
    rhos: tuple[float, ...],
    nums_pos: tuple[int, ...],
    trials: int,
    seed: int,
    tau: float = 0.5,
    eps: float = 0.001,
    climbing_steps: int = 100,
) -> Iterator[BoundRow]:
    """Look for lists on which theorem 1 is tightest.

    The random lists have positives and negatives at random places and of random width, so that all
    APs occur. The bad ones start from them and keep every random change that raises a ratio.

    Args:
        rhos: Negatives per positive, > 0.
        nums_pos: Even numbers of positives.
        trials: Lists of each size.
        seed: Of all that is random.
        tau: Margin of the surrogate.
        eps: Smoothing of h; the smaller, the tighter the bound.
        climbing_steps: Changes tried on every list.

    Yields:
        A row for each size.
    """
    for rho in rhos:
        for num_pos in nums_pos:
            num_neg = max(round(rho * num_pos), 1)
            g = torch.Generator().manual_seed(seed + 1_000_003 * num_pos + num_neg)
            pos = random_scores(trials, num_pos, g)
            neg = random_scores(trials, num_neg, g)
            random = _ratios(pos, neg, tau, eps).amax(1).tolist()
            worst = [
                climb(lambda p, n, i=i: _ratios(p, n, tau, eps)[i], (pos, neg), climbing_steps, g)
                .max()
                .item()
                for i in (0, 1)
            ]
            yield BoundRow(
                rho=num_neg / num_pos,
                num_pos=num_pos,
                num_lists=trials,
                random_risk=random[0],
                random_bound=random[1],
                worst_risk=worst[0],
                worst_bound=worst[1],
            )


def _ratios(pos, neg, tau, eps) -> Tensor:
    """(2, L) ratios of theorem 1, 0 where both sides vanish."""
    sides = theorem1_sides(pos, neg, tau, eps)
    first = torch.where(sides.surrogate_risk > 0, sides.risk / sides.surrogate_risk, 0)
    return torch.stack([first, sides.surrogate_risk / sides.bound])


def random_scores(lists: int, count: int, generator: torch.Generator) -> Tensor:
    """(lists, count) float64 scores in [-1, 1].

    Every list has a centre and a width of its own; a wide one is cut at the ends of the range,
    which gives ties.
    """
    low, high = SCORE_RANGE
    options = dict(generator=generator, dtype=torch.float64)
    centre = low + (high - low) * torch.rand(lists, 1, **options)
    width = torch.rand(lists, 1, **options).square()
    noise = torch.randn(lists, count, **options)
    return (centre + width * noise).clamp(low, high)


def climb(
    ratio: Callable[..., Tensor], lists: tuple[Tensor, ...], steps: int, generator: torch.Generator
) -> Tensor:
    """Change lists at random and keep what raises their ratio.

    Args:
        ratio: Takes the lists and returns (L,) ratios.
        lists: (L, n) tensors of scores in [-1, 1].
        steps: Changes tried on each list. The scores are moved together, scaled about their mean,
            or each on its own, in steps from large
            to small.
        generator: Source of the changes.

    Returns:
        (L,) ratios reached, at least those of the start.
    """
    best = ratio(*lists)
    options = dict(generator=generator, dtype=torch.float64)
    for step in range(steps):
        size = 0.5 * 0.01 ** (step / max(steps - 1, 1))
        changed = []
        for scores in lists:
            shape = (scores.size(0), 1)
            move = size * torch.randn(shape, **options)
            scale = torch.exp(size * torch.randn(shape, **options))
            # Most changes leave most scores where they are.
            chosen = torch.rand(scores.shape, **options) < torch.rand(shape, **options).pow(3)
            own = size * chosen * torch.randn(scores.shape, **options)
            mean = scores.mean(1, keepdim=True)
            new = mean + move + scale * (scores - mean) + own
            changed.append(new.clamp(*SCORE_RANGE))
        reached = ratio(*changed)
        better = (reached > best).unsqueeze(1)
        lists = tuple(torch.where(better, c, s) for c, s in zip(changed, lists))
        best = torch.maximum(best, reached)
    return best


@dataclass(frozen=True)
class WeightSumRow:
    """Mean weight of a list without ties.

    Attributes:
        rho_bound: rho times B.
        num_pos: Positives n+ of the list.
        mean_weight: ``sum_i w(r_i) / n+`` of theorem 1.
        upper: Its upper bound, q/2. The lower one is 1.
        mean_inverse_rank: ``sum_i (1/r_i) / n+``, the weights that Jensen's inequality alone would
            require (eq. 3); grows like log n+.
    """

    rho_bound: float
    num_pos: int
    mean_weight: float
    upper: float
    mean_inverse_rank: float


def weight_sum_rows(
    rho_bounds: tuple[float, ...], nums_pos: tuple[int, ...]
) -> Iterator[WeightSumRow]:
    """Sum the weights of theorem 1 for even numbers of positives.

    Source: stable AP (2025), lemma 3.
    """
    for rho_bound in rho_bounds:
        for num_pos in nums_pos:
            rank = torch.arange(1, num_pos + 1, dtype=torch.float64) / num_pos
            yield WeightSumRow(
                rho_bound=rho_bound,
                num_pos=num_pos,
                mean_weight=theorem1_weight(rank, rho_bound, 1.0).mean().item(),
                upper=half_q(rho_bound),
                mean_inverse_rank=(1 / rank).mean().item(),
            )
