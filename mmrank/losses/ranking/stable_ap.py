"""Stable AP: average precision as a rank-weighted pairwise loss."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mmrank.errors import UserError
from mmrank.losses.base import RankingLoss
from mmrank.losses.lists import RankedLists, all_positives
from mmrank.losses.pairs import OneSidedHuber
from mmrank.losses.pairs_graded import CountsQuality, graded_mass, graded_pair_sum, relevances
from mmrank.losses.pairs_smooth import sum_over_negatives
from mmrank.losses.plain_lists import like_scores, split_lists
from mmrank.settings import check_not_negative, check_positive, one_of
from mmrank.state import CappedImbalance, MeanPositiveScore, ScoreSpread
from mmrank.tensors import as_divisor

WEIGHTS = ('normalised', 'printed')
#: What is usual for raw logits and for cosines, see :class:`StableAPLoss`.
LOGITS: dict = dict(tau=1.0, score_range=(-5.0, 5.0), score_penalty=0.001)
COSINES = dict(tau=0.3, score_range=(-1.0, 1.0), score_penalty=0.0)


def stable_ap_loss(
    scores: Tensor,
    is_positive: Tensor,
    mean_pos: Tensor | float,
    *,
    tau: float,
    bound: float,
    a: float = 0.1,
    t: float = 2.0,
    eps: float = 0.1,
    rho: float | Tensor | None = None,
    weights: str = 'normalised',
    mask: Tensor | None = None,
    relevance: Tensor | None = None,
) -> Tensor:
    """Stable AP of each list, with the one-sided Huber surrogate l.

    ``h(rho / (n+ n-) * sum_ij sg[w_i] l(s_i - t_j))``, in ``[eps, sqrt(1 + eps^2)]``. Source:
    stable AP (2025), OP1 and OP2.

    See :func:`split_lists` for the lists and :class:`mmrank.losses.StableAPLoss` for other options.

    - ``mean_pos``: (L,) or scalar mean positive scores mu, no gradient: an estimate that outlives
      the batch.
    - ``bound``: Largest value B of the surrogate on the score range, > 0: ``1 + 2 (high -
      low)/tau``, so ``1 + 4/tau`` for cosines.
    - ``rho``: Imbalance, > 0: a number, or (L,) numbers without gradient. None: n-/n+ of each list,
      at which h saturates from random weights on; the class caps it.
    - ``relevance``: Of the shape of the scores, u > 0 at the positives, where it is read; no
      gradient. Only ratios count. The risk is then ``sum_i w_i [u_i sum_j l(s_i - t_j) + sum_k (u_i
      - u_k)_+ l(s_i - s_k)]`` over ``sum_i w_i [u_i n- + sum_k (u_i - u_k)_+]``, there without
      ``w_i`` for printed weights.

    Example:
        >>> scores = torch.tensor([1.0, 0.2, 0.1, -3.0])
        >>> stable_ap_loss(scores, torch.tensor([1, 1, 0, 0]), 0.6, tau=1.0, bound=21.0)
        tensor(0.3409)
    """
    one_of('weights', weights, WEIGHTS)
    check_positive(a=a, bound=bound, eps=eps)
    check_not_negative(t=t)
    lists = split_lists(scores, is_positive, mask, relevance)
    huber = OneSidedHuber(tau)
    risk, ratio = _weighted_risk(lists, mean_pos, huber, bound, a, t, weights, relevances(lists))
    if rho is None:
        rho = ratio
    elif not isinstance(rho, Tensor) and not rho > 0:
        raise ValueError(f'rho must be > 0 or None (n-/n+), got {rho!r}')
    loss = stable_ap_outer(rho * risk, eps)
    return like_scores(torch.where(lists.has_positive, loss, 0), scores)


def _weighted_risk(
    lists: RankedLists,
    mean_pos: Tensor | float,
    surrogate: OneSidedHuber,
    bound: float,
    a: float,
    t: float,
    weights: str,
    relevance: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(L,) arguments of h without rho, and (L,) imbalances n-/n+ without gradient, float64.

    ``X = 1/(n+ n-) sum_ij sg[w_i] l(s_i - t_j)``, 0 for a list without pairs; with an (L, P)
    ``relevance`` see :func:`stable_ap_loss`.
    """
    pos = lists.pos
    mask = lists.pos_mask
    counts = lists.positives
    total = sum_over_negatives(lists, surrogate)
    with torch.no_grad():
        mu = torch.as_tensor(mean_pos, dtype=torch.float64, device=pos.device)
        # Smoothed ranks of section 4.2, near 0 for a positive far above mu. The clamp covers scores
        # outside the range for which B was declared, such as detector logits.
        rank = (surrogate(pos.double() - mu.reshape(-1, 1)) / bound).clamp(0, 1)
        weight = torch.where(mask, ((1 + a) / (rank + a)) ** t, 0)  # eq. 4
        if weights == 'normalised':
            # ``1/n+ sum_i c_i w_i = 1``, c how often each counts: step (b) of the proof of theorem
            # 1 applies Jensen's inequality to the mean ``sum_i w_i (.)/sum_i w_i``. As eq. 4 is
            # printed, the weights have a mean of 50 to 120 for a = 0.1, t = 2, and make h flat.
            count = counts.sum(1, keepdim=True).to(weight.dtype)
            share = count / (counts * weight).sum(1, keepdim=True)
            weight = weight * torch.where(count > 0, share, 0)
        weight = counts * weight
        num_pos = lists.num_positives()
        num_neg = lists.num_negatives()
        ratio = num_neg / as_divisor(num_pos)
    if relevance is None:
        pairs = num_pos * num_neg
        risk = (weight * total).sum(1) / as_divisor(pairs)
        return risk, ratio
    with torch.no_grad():
        relevance = torch.where(mask, relevance.double(), 0)
        mass = relevance * num_neg.unsqueeze(1) + graded_mass(relevance, counts)
        pairs = (mass * weight if weights == 'normalised' else mass * counts).sum(1)
    among, _ = graded_pair_sum(pos, counts, relevance, weight, surrogate, lists.on_host)
    total = (weight * relevance * total).sum(1) + among
    return total / as_divisor(pairs), ratio


def stable_ap_outer(x: Tensor, eps: float) -> Tensor:
    """Outer function ``h(x) = sqrt(eps^2 + x/(1 + x))`` of stable AP (2025), theorem 1.

    The paper prints the exponent -1/2; its theorem 1 and lemma 9 need +1/2. Of x >= 0 of any shape;
    inf is its limit, NaN stays NaN. The slope is at most ``1/(2 eps)``.
    """
    # x/(1 + x), in a form that is exact near 0, finite at inf and whose derivative does not cancel.
    ratio = -torch.expm1(-torch.log1p(x))
    return (eps**2 + ratio).sqrt()


def score_sums(pos: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """(L,) sums of the scores of (L, P) positives, and how many these are."""
    # What an infinite score, of a broken image, adds has no slope. Without a positive it is 0 and
    # still hangs on the scores: DDP finds no unused parameter.
    scores = torch.where((counts > 0) & ~pos.isinf(), counts * pos.double(), 0)
    return scores.sum(1), counts.sum(1)


class StableAPLoss(CountsQuality, RankingLoss):
    """Average precision as a rank-weighted pairwise loss: positives above negatives, rare or not.

    Scores and labels are (n,) and (n,) of 0 and 1, (n, C) and (n, C) of 0 and 1, or (n, C) and (n,)
    class indices; (n, D) embeddings and (n,) classes go into :class:`mmrank.losses.EmbeddingLoss`.

    >>> loss = StableAPLoss()
    >>> scores = torch.randn(64, requires_grad=True)  # of a model
    >>> loss(scores, torch.arange(64) < 5).backward()

    :func:`mmrank.functional.stable_ap_loss` with moving averages, plus ``score_penalty * |mean_i
    s_i|^2``. Source: stable AP (2025), OP2 and section 7.2.1.2. The loss stays near 0.71 for nearly
    any scores: watch ``risk`` and AP. ``docs/pages/losses.md`` says why there are these settings.

    Args:
        num_classes: Number of classes C. Needed for ``mean_scope='per_class'``; heads fill it in.
        rho: Imbalance. ``auto``: n-/n+, capped by a moving average where h would saturate; one in
            all, or with ``mode='per_class'`` one per class. ``batch``: n-/n+ of each list of the
            batch (the paper's). Or a number > 0.
        weights: ``normalised``: the weights of a list have mean 1, as the proof of theorem 1 needs
            them. ``printed``: equation 4 undivided, which multiplies rho by 50 to 120.
        tau: Margin of the surrogate in units of the (activated) scores, > 0; ``auto``: it follows
            the standard deviation of the negatives in a list. None: 1, and 0.3 for cosines.
        score_range: Declared range of the (activated) scores, which sets the bound B; scores
            outside are allowed. None: -5 to 5, and -1 to 1 for cosines.
        a: Offset of the weight ``((1 + a)/(x + a))^t``, > 0.
        t: Power of the weight, >= 0.
        mean_mode: How the mean positive score is tracked: ``plain`` EMA, ``exact`` (eq. 6; add
            ``mmrank.PreviousWeightsHook``), ``off`` (the mean of the batch), or a number at which
            it stays (the paper's ablation).
        mean_scope: ``global`` or ``per_class`` mean positive score. None: as the rankings are.
        momentum: Weight lam of the new batch in the EMA.
        score_penalty: Weight of the score regulariser, which alone keeps the positives near 0.
            None: 0.001, and 0 for cosines.
        quality: How much the IoU of a positive's box counts, q in [0, 1]: its relevance is
            ``1 - q + q IoU``. None: 0.9 where a head passes the IoUs, 0 elsewhere (the paper's).
        reduction: ``mean`` over the rankings that have a positive, or ``sum``. The paper sums, also
            over the queries, and its learning rates are meant for it.
    """

    score_range: tuple[float, float]
    takes_weights = True
    eps = 0.1  # smoothing of h
    cost = 'scores'
    zero_without_positives = True
    saturation_advice = (
        "Use rho='auto' (the default), or a smaller number for rho, with weights='normalised'"
    )
    reading_advice = (
        'Stable AP: watch risk, which must fall, and AP; choose checkpoints by the AP of the '
        'validation split. The loss itself stays near 0.7. '
        "Where cross-entropy's learning rate is known, try a third of it first."
    )
    #: Least and largest margin with ``tau='auto'``, over the default one.
    MARGIN_LIMITS = (1 / 3, 10.0)

    def __init__(
        self,
        num_classes: int | None = None,
        mode: str = 'flatten',
        rho: float | str = 'auto',
        weights: str = 'normalised',
        tau: float | str | None = None,
        score_range: tuple[float, float] | None = None,
        a: float = 0.1,
        t: float = 2.0,
        mean_mode: str | float = 'plain',
        mean_scope: str | None = None,
        momentum: float = 0.01,
        score_penalty: float | None = None,
        quality: float | None = None,
        reduction: str = 'mean',
        **kwargs,
    ) -> None:
        super().__init__(num_classes=num_classes, mode=mode, **kwargs)
        mean_scope = mean_scope or ('global' if mode == 'flatten' else 'per_class')
        one_of('mean_scope', mean_scope, ('global', 'per_class'))
        one_of('weights', weights, WEIGHTS)
        one_of('reduction', reduction, ('mean', 'sum'))
        check_positive(a=a)
        check_not_negative(t=t, score_penalty=score_penalty or 0)
        is_number = not isinstance(rho, str)
        if rho not in ('auto', 'batch') and not (is_number and 0 < rho < math.inf):
            raise ValueError(f"rho must be 'auto', 'batch' or a number > 0, got {rho!r}")
        if mean_scope == 'per_class' and mode == 'flatten':
            raise ValueError("mean_scope='per_class' needs mode='per_class'")
        if isinstance(tau, str):
            one_of('tau', tau, ('auto',))
            if score_range is not None:
                what = f"score_range={score_range!r} has no effect with tau='auto'"
                raise UserError(f'{what}, which measures the spread of the scores', 'leave it out')
        self.reduction = reduction
        self.rho = float(rho) if is_number else rho
        self.weights = weights
        self.a = a
        self.t = t
        if quality is not None:
            self.count_quality(quality)
        size = num_classes or 1
        means = 1 if mean_scope == 'global' else self.state_size()
        self.mean_positive = MeanPositiveScore(means, momentum, mean_mode)
        self.imbalance = None
        if rho == 'auto':
            self.imbalance = CappedImbalance(1 if mode == 'flatten' else size)
        self.spread = ScoreSpread(1, 0.1) if tau == 'auto' else None
        given = dict(tau=tau, score_range=score_range, score_penalty=score_penalty)
        #: (L,) detached values of the lists of the last forward, and averages that it had.
        self.of_lists: dict[str, Tensor] = {}
        self.averages: dict[str, Tensor] = {}
        self._given = {name: x for name, x in given.items() if x not in (None, 'auto')}
        self._take_units(LOGITS)

    @property
    def takes_logits(self) -> bool:
        return super().takes_logits or self.score_range == LOGITS['score_range']

    def expect_cosines(self) -> None:
        super().expect_cosines()
        self._take_units(COSINES)

    def _take_units(self, usual: dict) -> None:
        """Take settings that depend on what the scores are, where none was given."""
        units = {**usual, **self._given}
        self.score_penalty = units['score_penalty']
        self.usual_margin = units['tau']
        if self.spread is not None:
            # In units of the standard deviation, which is measured.
            units = LOGITS
        vars(self)['score_range'] = units['score_range']  # of a user it would come too late
        self.surrogate = OneSidedHuber(units['tau'])
        self.bound = self.surrogate.bound(*self.score_range)

    def part_losses(self, parts: Sequence[RankedLists]) -> Tensor:
        first = parts[0]
        pos, counts = all_positives(parts)
        unit = self._unit(parts)
        low, high = self.score_range
        self.mean_positive.score_range = (low * unit, high * unit)
        mu = self.mean_positive.update(
            pos, counts, first.state_group, first.list_classes, first.on_host
        )
        terms = [self._risk(lists, unit, mu / unit) for lists in parts]
        risk, ratio = (torch.cat(x) for x in zip(*terms))
        counted = torch.cat([self.counted(lists) for lists in parts])
        rho = self._rho(risk, ratio, counted, first)
        argument = rho * risk
        self.of_lists.update(argument=argument.detach(), rho=rho, risk=risk.detach())
        self.averages['mean_positive'] = mu
        if isinstance(unit, Tensor):
            self.averages['tau'] = unit
        return torch.where(counted > 0, stable_ap_outer(argument, self.eps), 0)

    def total(self, losses: Tensor, counted: Tensor, parts: Sequence[RankedLists]) -> Tensor:
        loss = self.reduce_lists(losses, counted)
        if self.reduction == 'sum':
            loss = (losses * counted).sum()
        totals, numbers = score_sums(*all_positives(parts))
        penalty = self.penalty(totals.sum(), numbers.sum())
        self.diagnostics['score_penalty'] = penalty.detach()
        return loss + penalty

    def penalty(self, total: Tensor, number: Tensor) -> Tensor:
        """Score regulariser of positives with this sum."""
        return self.score_penalty * (total / as_divisor(number)).square()

    def diagnose(self, losses, counted, parts) -> dict[str, Tensor]:
        means = {name: average.mean() for name, average in self.averages.items()}
        for name, values in self.values_of_lists(counted).items():
            means[name] = self.reduce_lists(values, counted)
        return means

    def values_of_lists(self, counted: Tensor) -> dict[str, Tensor]:
        """(L,) values of the lists of the last forward by name, 0 for those that do not count."""
        values = {**self.of_lists, 'idle': (self.of_lists['risk'] == 0).float()}
        return {name: torch.where(counted > 0, x, 0) for name, x in values.items()}

    def _unit(self, parts: Sequence[RankedLists]) -> Tensor | float:
        """What tau and the score range are multiples of; with ``tau='auto'`` the spread."""
        if self.spread is None:
            return 1.0
        spreads = [self.spread.log_spreads(x.scores, x.negatives, x.group) for x in parts]
        unit = self.spread.average(
            torch.cat(spreads),
            torch.cat([lists.counted for lists in parts]),
            self.usual_margin,
            parts[0].state_group,
            parts[0].on_host,
        )
        least, largest = self.MARGIN_LIMITS
        return unit.clamp(least * self.usual_margin, largest * self.usual_margin)

    def counted(self, lists: RankedLists) -> Tensor:
        relevance = None if lists.values is None else self.relevance(lists)
        if relevance is None:
            return lists.counted
        # Without relevance it is not a positive.
        return lists.counted * (lists.pos_mask & (relevance != 0)).any(1)

    def _risk(self, lists: RankedLists, unit: Tensor | float, mu: Tensor) -> tuple[Tensor, Tensor]:
        """(L,) risks X and n-/n+ of each list."""
        if isinstance(unit, Tensor):
            divisor = unit.to(lists.pos.dtype)[:, None]
            lists = replace(lists, pos=lists.pos / divisor, scores=lists.scores / divisor)
        settings = (self.surrogate, self.bound, self.a, self.t, self.weights)
        relevance = None if lists.values is None else self.relevance(lists)
        return _weighted_risk(lists, mu, *settings, relevance)

    def _rho(self, risk: Tensor, ratio: Tensor, counted: Tensor, lists: RankedLists) -> Tensor:
        """(L,) imbalances of the lists."""
        if not isinstance(self.rho, str):
            return torch.full_like(ratio, self.rho)
        if self.imbalance is None:  # rho='batch'
            return ratio
        # The queries of a class are seen seldom: what an EMA of its own says is then out of date.
        # All queries share one.
        rows = lists.list_classes
        rows = None if rows is None else torch.zeros_like(rows)
        return self.imbalance.rho(risk, ratio, counted, lists.state_group, rows, lists.on_host)
