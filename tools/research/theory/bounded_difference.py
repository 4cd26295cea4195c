"""How far stable AP moves when one sample is replaced.

Lemma 1 of stable AP (2025), the property its generalisation bound rests on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.functional import OneSidedHuber, stable_ap_loss
from research.theory.ap_risk import ap_risk, lists_of
from research.theory.stable_ap_bound import SCORE_RANGE, random_scores


@dataclass(frozen=True)
class DifferenceSetting:
    """Parameters of the loss; rho is one number for all lists.

    Attributes:
        rho: Negatives per positive, > 0.
        tau: Margin of the surrogate, in units of cosine scores.
        a: Offset of the weight.
        t: Power of the weight.
        eps: Smoothing of the outer function.
        weights: ``normalised`` or ``printed``.
    """

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
        """Largest change that lemma 1 allows.

        ``rho B Bw / (eps n)`` as the paper has it. Weights of mean 1 obey a tighter limit: h is
        ``1/(2 eps)``-Lipschitz, a replaced negative moves the weighted mean of l by ``B/n``,
        whatever the weights are, and a replaced positive by ``B Bw/(n - 1 + Bw)``, its largest
        share.

        Args:
            count: Samples of the class, n.
            replaced: ``'positive'`` or ``'negative'``.
        """
        largest = self.largest_weight
        if self.weights == 'printed':
            return self.rho * self.bound * largest / (self.eps * count)
        share = 1 / count
        if replaced == 'positive':
            share = largest / (count - 1 + largest)
        return self.rho * self.bound * share / (2 * self.eps)


@dataclass(frozen=True)
class DifferenceRow:
    """Largest change of a loss when one sample is replaced.

    Attributes:
        replaced: ``'positive'`` or ``'negative'``.
        count: Samples of that class.
        limit: Lemma 1 for stable AP.
        random: Largest change of stable AP on random lists.
        worst: Largest change of stable AP on lists made for it.
        ap_worst: Largest change of ``1 - AP`` over the same lists.
    """

    replaced: str
    count: int
    limit: float
    random: float
    worst: float
    ap_worst: float


def stable_ap_of_lists(
    pos: Tensor, neg: Tensor, mean_pos: Tensor, setting: DifferenceSetting
) -> Tensor:
    """(L,) stable AP losses; mu is a constant of the lists, as in lemma 1."""
    return stable_ap_loss(
        *lists_of(pos, neg),
        mean_pos,
        tau=setting.tau,
        bound=setting.bound,
        a=setting.a,
        t=setting.t,
        eps=setting.eps,
        rho=setting.rho,
        weights=setting.weights,
    )


def difference_rows(
    nums_pos: tuple[int, ...], trials: int, seed: int, setting: DifferenceSetting | None = None
) -> Iterator[DifferenceRow]:
    """Replace the lowest or the highest sample of a class.

    It goes to either end of the score range, a margin of tau from it, or to the middle.

    Args:
        nums_pos: Numbers of positives; there are rho times as many negatives.
        trials: Random lists of each size.
        seed: Of the random lists.
        setting: Of the loss; None for the defaults.

    Yields:
        A row for each size and class of the replaced sample.
    """
    setting = DifferenceSetting() if setting is None else setting
    for num_pos in nums_pos:
        num_neg = max(round(setting.rho * num_pos), 1)
        g = torch.Generator().manual_seed(seed + num_pos)
        lists = (random_scores(trials, num_pos, g), random_scores(trials, num_neg, g))
        random = *lists, lists[0].mean(1)
        worst = _lists_on_a_grid(num_pos, num_neg, setting.tau)
        for replaced, count in (('positive', num_pos), ('negative', num_neg)):
            random_change = _largest_changes(*random, replaced, setting)
            worst_change = _largest_changes(*worst, replaced, setting)
            yield DifferenceRow(
                replaced=replaced,
                count=count,
                limit=setting.limit(count, replaced),
                random=random_change[0],
                worst=max(random_change[0], worst_change[0]),
                ap_worst=max(random_change[1], worst_change[1]),
            )


def _places(tau: float) -> list[float]:
    """Scores where a margin of tau to an end of the range begins or ends."""
    low, high = SCORE_RANGE
    return [low, low + tau, 0.0, high - tau, high]


def _lists_on_a_grid(num_pos: int, num_neg: int, tau: float) -> tuple[Tensor, Tensor, Tensor]:
    """Positives, negatives and mu, each in one place or spread over a few.

    The worst cases are of this kind: a list that is perfect by a margin of tau, where h is
    steepest, and a mu so low that the replaced sample weighs most.
    """
    low, high = SCORE_RANGE
    places = torch.tensor(_places(tau), dtype=torch.float64)
    p, n, mu, width = torch.cartesian_prod(
        places, places, places[:3], torch.tensor([0.0, 0.2], dtype=torch.float64)
    ).T

    def spread(centre, count):
        offsets = torch.linspace(-0.5, 0.5, count, dtype=torch.float64)
        return (centre[:, None] + width[:, None] * offsets).clamp(low, high)

    return spread(p, num_pos), spread(n, num_neg), mu


def _largest_changes(
    pos: Tensor, neg: Tensor, mean_pos: Tensor, replaced: str, setting: DifferenceSetting
) -> tuple[float, float]:
    """Largest change of stable AP and of the AP risk over all lists."""
    before = stable_ap_of_lists(pos, neg, mean_pos, setting)
    ap_before = ap_risk(pos, neg)
    change = ap_change = 0.0
    # The lowest and the highest sample: what moves the list most.
    for end in ('min', 'max'):
        which = getattr(pos if replaced == 'positive' else neg, end)(1)
        index = which.indices.unsqueeze(1)
        for value in _places(setting.tau):
            new_pos, new_neg = pos, neg
            if replaced == 'positive':
                new_pos = pos.scatter(1, index, value)
            else:
                new_neg = neg.scatter(1, index, value)
            after = stable_ap_of_lists(new_pos, new_neg, mean_pos, setting)
            change = max(change, (after - before).abs().max().item())
            ap_after = ap_risk(new_pos, new_neg)
            ap_change = max(ap_change, (ap_after - ap_before).abs().max().item())
    return change, ap_change
