"""Stable AP as a registered loss."""

from collections.abc import Callable

import torch
from torch import Tensor

from mmrank.functional.ranking.stable_ap import (
    WEIGHTS,
    StableAPTerms,
    WeightedRisk,
    rank_weighted_risk,
    stable_ap_of_risk,
)
from mmrank.losses.inputs import one_of
from mmrank.losses.pairs.surrogates import build_surrogate
from mmrank.state import CappedImbalance, MeanPositiveScore

from .ranking_loss import RankedLists, RankingLoss


class StableAPLoss(RankingLoss):
    """Average precision as a rank-weighted pairwise loss.

    ``h(rho * mean_ij sg[w_i] l(s_i - t_j))`` over positives i and negatives
    j, plus ``score_penalty * |mean_i s_i|^2``. Source: stable AP (2025), OP2 and section 7.2.1.2.

    **Imbalance (rho).** h saturates: its slope is ``1/(2 h (1 + x)^2)`` at
    the argument x. With the paper's ``rho = n-/n+`` x is far above 1 from
    the start, and little is learnt: 1,897 was measured for the queries of
    28 x 4 images with printed weights, and 10^3 for the anchors of a
    detector. With one list, rho only scales the step, so ``auto`` caps the paper's rho where x
    would pass 1:

    ``rho = min(n-/n+, 1/EMA(X))``, ``X = mean_ij w_i l(s_i - t_j)``.

    There is one EMA, or one per class in classification and detection with ``mode='per_class'``. As
    X falls, rho rises to the paper's. Watch ``rho``, ``argument`` and ``risk`` (X) in the log: with
    ``auto`` the loss itself stays near ``h(1) = 0.71`` until then, and the risk shows what is
    learnt.

    **Retrieval.** Each image of the batch is a query with a list of its own
    (:meth:`embedding_loss`). The defaults are for logits; for cosines::

        dict(type='mmrank.StableAPLoss', tau=0.1, score_range=(-1, 1),
             score_penalty=0, mode='per_class')

    Then ``B = 1 + 4/tau``, and nothing anchors the scores, which are bounded. The mean positive
    score is one per class of the queries, over all its queries in the batch
    (``mean_scope='global'``: one in all). The paper compares tau of 0.01, 0.03, 0.1 and 0.3 and
    finds the smallest unstable.

    Args:
        num_classes: Number of classes C, checked against the scores. Needed for
            ``mean_scope='per_class'``; heads fill it in.
        mode: ``flatten``: all classes in one ranking, every score counts once per class.
            ``per_class``: one ranking per class.
        reduction: How the rankings of ``per_class`` and of the queries are
            put together: ``mean`` over those that have a positive, or ``sum`` (the paper's,
            sections 7.1.1.2 and 7.2.1.2): its learning rates
            are meant for it.
        rho: Imbalance: ``auto`` (see above), ``batch`` for n-/n+ of each list of the batch (the
            paper's), or a number > 0.
        weights: ``normalised``: the weights of a list have mean 1, as the proof of theorem 1 needs
            them. ``printed``: equation 4 undivided, which multiplies rho by 50 to 120 (configs from
            before that division, with a rho tuned for it).
        tau: Margin of the surrogate in units of the (activated) scores, > 0.
        surrogate: ``one_sided_huber`` (exact in near-linear time), ``squared_hinge``, ``logistic``
            or ``sigmoid`` (pair matrix in blocks).
        score_range: Declared range of the (activated) scores. It sets the bound B of the surrogate
            in the weight; scores outside are
            allowed, their weight is clamped.
        a: Offset of the weight ``((1 + a)/(x + a))^t``, > 0.
        t: Power of the weight, >= 0.
        eps: Smoothing of h, > 0.
        mean_mode: How the mean positive score is tracked: ``plain`` EMA, ``exact`` (eq. 6; add
            ``mmrank.PreviousWeightsHook``), ``fixed`` (at ``fixed_mean``, the paper's ablation) or
            ``off`` (that of
            the batch).
        fixed_mean: The mean of ``mean_mode='fixed'``, in units of the (activated) scores.
        mean_scope: ``global`` or ``per_class`` mean positive score. None:
            as the rankings are.
        momentum: Weight lam of the new batch in the EMA.
        activation: ``none`` ranks raw logits, ``sigmoid`` scores in (0, 1).
        score_penalty: Weight of the score regulariser, which keeps the positives near 0: the AP
            part does not change when a constant is added to all scores.
        penalty_reduction: ``mean``: square of the mean positive score;
            ``sum``: square of the sum (the paper's, grows with the batch).
        scope: ``global``: in distributed training the scores of all ranks
            form one ranking, exactly as in a single process. ``local``: each rank ranks its own.
        loss_weight: Factor of the whole loss.
        use_sigmoid: Read by mmdet heads from the config: one output channel per class and sigmoid
            at test time, which keeps the ranking. Only True is supported.

    Raises:
        ValueError: On a parameter out of range.
    """

    ignores_empty_lists = True
    saturation_advice = (
        "Use rho='auto' (the default), or a smaller number for rho, with weights='normalised'"
    )

    #: In units of what scores of the range have; more in the first batch is
    #: no risk to start an average from.
    LARGEST_RISK = 10.0

    def __init__(
        self,
        num_classes: int | None = None,
        mode: str = 'flatten',
        reduction: str = 'mean',
        rho: float | str = 'auto',
        weights: str = 'normalised',
        tau: float = 1.0,
        surrogate: str = 'one_sided_huber',
        score_range: tuple[float, float] = (-5.0, 5.0),
        a: float = 0.1,
        t: float = 2.0,
        eps: float = 0.1,
        mean_mode: str = 'plain',
        mean_scope: str | None = None,
        momentum: float = 0.01,
        activation: str = 'none',
        score_penalty: float = 0.001,
        penalty_reduction: str = 'mean',
        scope: str = 'global',
        loss_weight: float = 1.0,
        use_sigmoid: bool = True,
        fixed_mean: float | None = None,
    ) -> None:
        super().__init__(
            num_classes=num_classes,
            mode=mode,
            activation=activation,
            scope=scope,
            loss_weight=loss_weight,
            use_sigmoid=use_sigmoid,
            reduction=reduction,
        )
        one_of('penalty_reduction', penalty_reduction, ('mean', 'sum'))
        mean_scope = mean_scope or ('global' if mode == 'flatten' else 'per_class')
        one_of('mean_scope', mean_scope, ('global', 'per_class'))
        one_of('weights', weights, WEIGHTS)
        named = isinstance(rho, str)
        if rho not in ('auto', 'batch') and (named or not rho > 0):
            raise ValueError(f"rho must be 'auto', 'batch' or a number > 0, got {rho!r}")
        if score_penalty < 0:
            raise ValueError(f'score_penalty must be >= 0, got {score_penalty!r}')
        if mean_scope == 'per_class' and mode == 'flatten':
            raise ValueError("mean_scope='per_class' needs mode='per_class'")
        if mean_scope == 'per_class' and num_classes is None:
            raise ValueError(
                "mean_scope='per_class' requires num_classes: set it to the "
                'number of classes of the data set'
            )
        self.rho = rho if named else float(rho)
        self.weights = weights
        self.surrogate = build_surrogate(surrogate, tau)
        self.bound = self.surrogate.bound(*score_range)
        self.a, self.t, self.eps = a, t, eps
        self.score_penalty = score_penalty
        self.penalty_reduction = penalty_reduction
        size = num_classes if mean_scope == 'per_class' else 1
        self.mean_positive = MeanPositiveScore(size, momentum, mean_mode, score_range, fixed_mean)
        self.imbalance = None
        if rho == 'auto':
            per_class = mode == 'per_class' and num_classes is not None
            # Scores of the range have at most X = B, times the mean weight.
            largest = self.LARGEST_RISK * self.bound
            if weights == 'printed':
                largest *= ((1 + a) / a) ** t
            self.imbalance = CappedImbalance(num_classes if per_class else 1, largest=largest)

    @property
    def can_be_separate(self) -> bool:
        """Whether :meth:`separate_losses` serves this loss."""
        # A subclass may compute something else, and eq. 6 notes the mean of
        # a batch in the module itself.
        return (
            type(self) is StableAPLoss
            and self.mode == 'flatten'
            and self.mean_positive.mode != 'exact'
        )

    def list_losses(self, lists: RankedLists) -> Tensor:
        """Stable AP of the lists and the score regulariser."""
        weighted, terms, rho, mu = self._terms(lists)
        loss = self.reduce_lists(terms.loss, weighted.has_positive)
        return self._penalised(loss, lists, terms, rho, mu.mean(), torch.sum)

    def separate_losses(self, lists: RankedLists) -> Tensor:
        """The same of each list, the state a number for each list."""
        _, terms, rho, mu = self._terms(lists)
        return self._penalised(terms.loss, lists, terms, rho, mu, _list_sums)

    def _terms(self, lists: RankedLists) -> tuple[WeightedRisk, StableAPTerms, Tensor, Tensor]:
        """Terms of the lists, their rho and mean positive scores."""
        pos, pos_mask = lists.pos, lists.pos_mask
        mu = self.mean_positive.update(pos, pos_mask, lists.state_group, lists.list_classes)
        weighted = rank_weighted_risk(
            pos,
            lists.scores,
            mu,
            surrogate=self.surrogate,
            bound=self.bound,
            a=self.a,
            t=self.t,
            weights=self.weights,
            pos_mask=pos_mask,
            neg_mask=lists.neg_mask,
            group=lists.group,
        )
        rho = self._rho(weighted, lists)
        return weighted, stable_ap_of_risk(weighted, rho, self.eps), rho, mu

    def _penalised(
        self,
        loss: Tensor,
        lists: RankedLists,
        terms: StableAPTerms,
        rho: Tensor,
        mean: Tensor,
        total: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Add the score regulariser and note the diagnostics.

        Args:
            loss: () or (L,) stable AP.
            lists: The rankings of the batch.
            terms: What it was computed from.
            rho: (L,) imbalances.
            mean: () or (L,) mean positive score to note.
            total: Adds up (L, P) or (L,) values: all, or those of each list.
        """
        pos, pos_mask = lists.pos, lists.pos_mask
        penalty = self.score_penalty * self._score_offset(pos, pos_mask, total)
        self._note(terms, rho, mean, pos_mask, penalty, total)
        # Without a positive both parts are 0 and still hang on the scores, through the empty
        # gather: DDP finds no unused parameter.
        loss = loss + penalty
        return loss.to(torch.promote_types(pos.dtype, torch.float32))

    def logit_centre(self) -> Tensor:
        """Mean positive score as a raw score, (1,) or (C,)."""
        mean = self.mean_positive.mean
        return mean.logit(1e-6) if self.activation == 'sigmoid' else mean

    @torch.no_grad()
    def shift_logits(self, offset: Tensor) -> None:
        """Move the mean positive score with the raw scores.

        Differences of scores, and so ``rho``, stay. With a sigmoid the mean
        of the moved scores is not known; that of their centre takes its
        place.

        Args:
            offset: (1,) or (C,), what is added to the raw scores.
        """
        mean = self.mean_positive.mean
        mean.copy_(self._shifted(mean, offset))

    def _rho(self, weighted: WeightedRisk, lists: RankedLists) -> Tensor:
        """(L,) imbalances of the lists."""
        if self.rho == 'batch':
            return weighted.ratio
        if self.rho != 'auto':
            return torch.full_like(weighted.ratio, self.rho)
        # The queries of a class are seen seldom: what an EMA of its own says is then out of date.
        # All queries share one.
        rows = lists.list_classes
        rows = None if rows is None else torch.zeros_like(rows)
        return self.imbalance.rho(
            weighted.risk, weighted.ratio, weighted.has_positive, lists.state_group, rows
        )

    def _score_offset(
        self, pos: Tensor, pos_mask: Tensor, total: Callable[[Tensor], Tensor]
    ) -> Tensor:
        offset = total(torch.where(pos_mask, pos.double(), 0))
        if self.penalty_reduction == 'mean':
            offset = offset / total(pos_mask).clamp(min=1)
        return offset.square()

    @torch.no_grad()
    def _note(
        self,
        terms: StableAPTerms,
        rho: Tensor,
        mean: Tensor,
        pos_mask: Tensor,
        penalty: Tensor,
        total: Callable[[Tensor], Tensor],
    ) -> None:
        weighted = terms.weighted
        number = total(pos_mask)
        count = number.clamp(min=1)
        mean_weight = total(weighted.weight) / count
        spread = weighted.weight - mean_weight.reshape(-1, 1)
        spread = torch.where(pos_mask, spread, 0)
        has = weighted.has_positive
        lists = total(has).clamp(min=1)
        self.diagnostics = {
            'argument': total(torch.where(has, terms.argument, 0)) / lists,
            'rho': total(torch.where(has, rho, 0)) / lists,
            'risk': total(torch.where(has, weighted.risk.detach(), 0)) / lists,
            'mean_positive': mean,
            'weight_spread': (total(spread.square()) / count).sqrt() / mean_weight.clamp(min=1e-12),
            'score_penalty': penalty.detach(),
            'num_positive': number,
        }


def _list_sums(values: Tensor) -> Tensor:
    """(L,) sums of (L, P) or (L,) values."""
    if values.dim() == 2:
        return values.sum(1)
    return values.long() if values.dtype == torch.bool else values
