"""The theory of stable AP (2025), measured: theorem 1, lemma 1 and 3, the tracked mean of eq. 6."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from mmrank.functional import OneSidedHuber, pairwise_surrogate_sum, stable_ap_loss
from mmrank.losses.ranking.stable_ap import stable_ap_outer
from mmrank.state import MeanPositiveScore

# Cosine scores.
SCORE_RANGE = (-1.0, 1.0)


def theorem1_weight(rank: Tensor, rho: float | Tensor, bound: float) -> Tensor:
    """Weight for which the stable AP risk bounds the AP risk: stable AP (2025), theorem 1.

    ``0.5 (r - r^2)^(-1/2)`` for a rank ``r`` of at most 1/2, else ``(1 + rho B)/(r + rho B)``.
    """
    upper = (1 + rho * bound) / (rank + rho * bound)
    head = rank.clamp(max=0.5)
    return torch.where(rank <= 0.5, 0.5 * (head - head.square()).rsqrt(), upper)


def scores_of(pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
    """(L, P) positives and (L, N) negatives as scores and ``is_positive`` of a ranking function."""
    is_positive = torch.cat([torch.ones_like(pos), torch.zeros_like(neg)], 1).bool()
    return torch.cat([pos, neg], 1), is_positive


def count_at_or_above(queries: Tensor, scores: Tensor) -> Tensor:
    """(L, P) counts, float64, of the (L, N) ``scores`` that are >= each of the (L, P) queries."""
    below = torch.searchsorted(scores.sort(dim=1).values, queries.contiguous())
    return (scores.size(1) - below).double()


def ap_risk(pos: Tensor, neg: Tensor) -> Tensor:
    """(L,) ``1 - AP`` of L lists, ties counted by l01. Source: stable AP (2025), section 3.1."""
    negatives = count_at_or_above(pos, neg)
    return (negatives / (negatives + count_at_or_above(pos, pos))).mean(1)


def random_scores(lists: int, count: int, generator: torch.Generator) -> Tensor:
    """(lists, count) float64 scores in [-1, 1], each list of its own place and width, with ties."""
    low, high = SCORE_RANGE
    options = dict(generator=generator, dtype=torch.float64)
    centre = low + (high - low) * torch.rand(lists, 1, **options)
    width = torch.rand(lists, 1, **options).square()
    return (centre + width * torch.randn(lists, count, **options)).clamp(low, high)


class Theorem1Sides(NamedTuple):
    """The quantities of theorem 1, (L,) each; the first three ascend."""

    risk: Tensor  # ``1 - AP``
    surrogate_risk: Tensor  # ``mean_i htilde(rho l_i / r_i)``
    bound: Tensor  # ``q/2 h(rho/n+ sum_i w(r_i) l_i)``
    # ``htilde(rho/n+ sum_i l_i / r_i)`` (eq. 3), another bound of ``surrogate_risk`` that the paper
    # turns down.
    jensen: Tensor


def theorem1_sides(pos: Tensor, neg: Tensor, tau: float, eps: float) -> Theorem1Sides:
    """Evaluate theorem 1 of stable AP (2025) on L lists, P even, with exponent +1/2 in h."""
    num_pos = pos.size(1)
    num_neg = neg.size(1)
    rho = num_neg / num_pos
    surrogate = OneSidedHuber(tau)
    largest = surrogate.bound(*SCORE_RANGE)
    mean = pairwise_surrogate_sum(pos, neg, surrogate) / num_neg
    rank = count_at_or_above(pos, pos) / num_pos
    x = rho * mean / rank
    weight = theorem1_weight(rank, rho, largest)
    return Theorem1Sides(
        risk=ap_risk(pos, neg),
        surrogate_risk=(x / (1 + x)).mean(1),
        bound=half_q(rho * largest) * stable_ap_outer(rho * (weight * mean).mean(1), eps),
        jensen=1 - 1 / (1 + x.mean(1)),
    )


def half_q(rho_bound: float) -> float:
    """``q/2 = pi/4 + (1 + rho B)/(1 + 2 rho B)`` of theorem 1."""
    return math.pi / 4 + (1 + rho_bound) / (1 + 2 * rho_bound)


class BoundRow(NamedTuple):
    """Largest ratios of the sides of theorem 1, on random lists and on lists searched for."""

    rho: float
    num_pos: int
    random_risk: float
    worst_risk: float
    random_bound: float
    worst_bound: float


def bound_row(
    rho: float, num_pos: int, trials: int, seed: int, climbing_steps: int = 100
) -> BoundRow:
    """Look for lists on which theorem 1 is tightest: random ones, and changes that help."""
    num_neg = max(round(rho * num_pos), 1)
    g = torch.Generator().manual_seed(seed + 1_000_003 * num_pos + num_neg)
    lists = random_scores(trials, num_pos, g), random_scores(trials, num_neg, g)

    def ratios(pos: Tensor, neg: Tensor) -> Tensor:
        """(2, L) ratios, 0 where both sides vanish."""
        sides = theorem1_sides(pos, neg, tau=0.5, eps=0.001)
        first = torch.where(sides.surrogate_risk > 0, sides.risk / sides.surrogate_risk, 0)
        return torch.stack([first, sides.surrogate_risk / sides.bound])

    random = ratios(*lists).amax(1).tolist()
    worst = [
        climb(lambda p, n, i=i: ratios(p, n)[i], lists, climbing_steps, g).max().item()
        for i in (0, 1)
    ]
    return BoundRow(num_neg / num_pos, num_pos, random[0], worst[0], random[1], worst[1])


def climb(
    ratio: Callable[..., Tensor], lists: tuple[Tensor, ...], steps: int, generator: torch.Generator
) -> Tensor:
    """Change lists at random and keep what raises their ratio."""
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
            changed.append((mean + move + scale * (scores - mean) + own).clamp(*SCORE_RANGE))
        reached = ratio(*changed)
        better = (reached > best).unsqueeze(1)
        lists = tuple(torch.where(better, c, s) for c, s in zip(changed, lists))
        best = torch.maximum(best, reached)
    return best


class WeightSumRow(NamedTuple):
    """Mean weight of a list without ties, below ``upper`` = q/2: lemma 3 of stable AP (2025)."""

    rho_bound: float
    num_pos: int
    mean_weight: float
    upper: float
    mean_inverse_rank: float


def weight_sum_row(rho_bound: float, num_pos: int) -> WeightSumRow:
    """Sum the weights of theorem 1 for ``rho_bound``, rho times B, and an even n+."""
    rank = torch.arange(1, num_pos + 1, dtype=torch.float64) / num_pos
    mean = theorem1_weight(rank, rho_bound, 1.0).mean().item()
    return WeightSumRow(rho_bound, num_pos, mean, half_q(rho_bound), (1 / rank).mean().item())


class DifferenceSetting(NamedTuple):
    """Parameters of lemma 1: rho, margin tau, offset a, power t, smoothing eps; kind of weights."""

    rho: float = 1.0
    tau: float = 0.5
    a: float = 0.1
    t: float = 2.0
    eps: float = 0.1
    weights: str = 'normalised'

    @property
    def bound(self) -> float:
        """Largest value B of the surrogate."""
        return OneSidedHuber(self.tau).bound(*SCORE_RANGE)

    @property
    def largest_weight(self) -> float:
        """Largest weight Bw of eq. 4, before any division."""
        return ((1 + self.a) / self.a) ** self.t

    def limit(self, count: int, replaced: str) -> float:
        """Largest change, ``rho B Bw / (eps n)``, that lemma 1 allows for n = ``count`` samples."""
        largest = self.largest_weight
        if self.weights == 'printed':
            return self.rho * self.bound * largest / (self.eps * count)
        share = 1 / count
        if replaced == 'positive':
            share = largest / (count - 1 + largest)
        return self.rho * self.bound * share / (2 * self.eps)

    def loss(self, pos: Tensor, neg: Tensor, mean_pos: Tensor) -> Tensor:
        """(L,) stable AP losses; mu is a constant of the lists, as in lemma 1."""
        return stable_ap_loss(*scores_of(pos, neg), mean_pos, bound=self.bound, **self._asdict())


class DifferenceRow(NamedTuple):
    """Largest change of a loss when one of ``count`` samples of a class is replaced; lemma 1."""

    replaced: str
    count: int
    limit: float
    worst: float
    share: float  # ``worst`` over ``limit``
    random: float
    ap_worst: float


def difference_rows(
    num_pos: int, trials: int, seed: int, setting: DifferenceSetting
) -> Iterator[DifferenceRow]:
    """Replace the lowest or the highest sample of a class, by :func:`_places`."""
    num_neg = max(round(setting.rho * num_pos), 1)
    g = torch.Generator().manual_seed(seed + num_pos)
    lists = random_scores(trials, num_pos, g), random_scores(trials, num_neg, g)
    random = *lists, lists[0].mean(1)
    made = _lists_on_a_grid(num_pos, num_neg, setting.tau)
    for replaced, count in (('positive', num_pos), ('negative', num_neg)):
        by_chance, ap_by_chance = _largest_changes(*random, replaced, setting)
        worst, ap_worst = _largest_changes(*made, replaced, setting)
        worst = max(by_chance, worst)
        limit = setting.limit(count, replaced)
        changes = worst, worst / limit, by_chance, max(ap_by_chance, ap_worst)
        yield DifferenceRow(replaced, count, limit, *changes)


def _places(tau: float) -> list[float]:
    """Scores where a margin of tau to an end of the range begins or ends."""
    low, high = SCORE_RANGE
    return [low, low + tau, 0.0, high - tau, high]


def _lists_on_a_grid(num_pos: int, num_neg: int, tau: float) -> tuple[Tensor, Tensor, Tensor]:
    """Positives, negatives and mu in one place or spread over a few, as the worst cases are."""
    places = torch.tensor(_places(tau), dtype=torch.float64)
    widths = torch.tensor([0.0, 0.2], dtype=torch.float64)
    p, n, mu, width = torch.cartesian_prod(places, places, places[:3], widths).T

    def spread(centre, count):
        offsets = torch.linspace(-0.5, 0.5, count, dtype=torch.float64)
        return (centre[:, None] + width[:, None] * offsets).clamp(*SCORE_RANGE)

    return spread(p, num_pos), spread(n, num_neg), mu


def _largest_changes(
    pos: Tensor, neg: Tensor, mean_pos: Tensor, replaced: str, setting: DifferenceSetting
) -> tuple[float, float]:
    """Largest change of stable AP and of the AP risk over all lists."""
    before = setting.loss(pos, neg, mean_pos)
    ap_before = ap_risk(pos, neg)
    change = ap_change = 0.0
    is_positive = replaced == 'positive'
    scores = pos if is_positive else neg
    # The lowest and the highest sample: what moves the list most.
    for index in (scores.min(1).indices, scores.max(1).indices):
        for value in _places(setting.tau):
            moved = scores.scatter(1, index.unsqueeze(1), value)
            lists = (moved, neg) if is_positive else (pos, moved)
            after = setting.loss(*lists, mean_pos)
            change = max(change, (after - before).abs().max().item())
            ap_change = max(ap_change, (ap_risk(*lists) - ap_before).abs().max().item())
    return change, ap_change


class TrackingError(NamedTuple):
    """Error of the estimates of mu, estimate minus true mean."""

    drift: Tensor  # (K,) change of the true mean at every step
    error: dict[str, Tensor]  # (K, trials) by mode
    # ``(1 - lam)/lam`` times the drift: where plain EMA ends up below a mean that drifts for ever
    lag: float
    # Standard deviation ``sigma/sqrt(n) sqrt(lam/(2 - lam))`` that both modes settle at
    noise: float


def mean_score_tracking(steps: int, trials: int, seed: int) -> TrackingError:
    """Track a mean positive score that drifts and then stops, by the state of training, eq. 6."""
    momentum = 0.01
    drift = 0.001
    sigma = 0.2
    num_pos = 16
    g = torch.Generator().manual_seed(seed)
    states = {mode: MeanPositiveScore(trials, momentum, mode) for mode in ('exact', 'plain')}
    mask = torch.ones(trials, num_pos, dtype=torch.bool)
    moves = torch.full((steps,), drift, dtype=torch.float64)
    moves[2 * steps // 3 :] = 0
    error = {mode: [] for mode in states}
    mean = 0.0
    for move in moves.tolist():
        mean += move
        now = mean + sigma * torch.randn(trials, num_pos, generator=g, dtype=torch.float64)
        for mode, state in states.items():
            if mode == 'exact':
                # The same batch under the previous weights.
                with state.probing():
                    state.update(now - move, mask)
            error[mode].append(state.update(now, mask).double() - mean)
    return TrackingError(
        drift=moves,
        error={mode: torch.stack(rows) for mode, rows in error.items()},
        lag=(1 - momentum) / momentum * drift,
        noise=sigma / num_pos**0.5 * (momentum / (2 - momentum)) ** 0.5,
    )
