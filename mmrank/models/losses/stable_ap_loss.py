"""Stable AP as a registered loss."""

import torch
from torch import Tensor

from mmrank.functional.stable_ap import stable_ap_terms
from mmrank.functional.surrogates import build_surrogate
from mmrank.registry import MODELS
from mmrank.state import MeanPositiveScore

from .one_of import one_of
from .ranked_lists import RankedLists
from .ranking_loss import RankingLoss


@MODELS.register_module()
class StableAPLoss(RankingLoss):
    """Average precision as a rank-weighted pairwise loss.

    ``h(rho * mean_ij sg[w_i] l(s_i - t_j))`` over positives i and negatives
    j, plus ``score_penalty * |mean_i s_i|^2``. Source: stable AP (2025), OP2
    and section 7.2.1.2.

    **Normalisation (rho).** h saturates: its slope is
    ``1/(2 h (1 + x)^2)`` at the argument x. With the paper's ``rho = n-/n+``
    x is of order 1 where lists are short (retrieval, classification), but
    10^3 to 10^4 for the anchors of a detector, where nothing is then learnt.
    The detection formula of the paper (section 7.2) has no rho; that is
    ``rho=1``, which :func:`ListwiseHead` sets unless the config says
    otherwise. Watch ``argument`` in the log.

    **Retrieval.** Each image of the batch is a query with a list of its own
    (:meth:`embedding_loss`). The defaults are for logits; for cosines::

        dict(type='mmrank.StableAPLoss', tau=0.1, score_range=(-1, 1),
             score_penalty=0, mode='per_class')

    Then ``B = 1 + 4/tau``, ``rho`` is the paper's n-/n+ of each query's list,
    and nothing anchors the scores, which are bounded. The mean positive score
    is one per class of the queries, over all its queries in the batch
    (``mean_scope='global'``: one in all). The paper compares tau of 0.01,
    0.03, 0.1 and 0.3 and finds the smallest unstable.

    Args:
        num_classes: Number of classes C, checked against the scores. Needed
            for ``mean_scope='per_class'``; heads fill it in.
        mode: ``flatten``: all classes in one ranking, every score counts once
            per class. ``per_class``: one ranking per class.
        reduction: How the rankings of ``per_class`` are put together:
            ``mean`` over the classes that have a positive, or ``sum`` (the
            paper's).
        rho: Imbalance: a number, or ``batch`` for n-/n+ of the batch.
        tau: Margin of the surrogate in units of the (activated) scores, > 0.
        surrogate: ``one_sided_huber`` (exact in near-linear time),
            ``squared_hinge``, ``logistic`` or ``sigmoid`` (pair matrix in
            blocks).
        score_range: Declared range of the (activated) scores. It sets the
            bound B of the surrogate in the weight; scores outside are
            allowed, their weight is clamped.
        a: Offset of the weight ``((1 + a)/(x + a))^t``, > 0.
        t: Power of the weight, >= 0.
        eps: Smoothing of h, > 0.
        mean_mode: How the mean positive score is tracked: ``plain`` EMA,
            ``exact`` (eq. 6; add ``mmrank.PreviousWeightsHook``) or ``off``.
        mean_scope: ``global`` or ``per_class`` mean positive score. None:
            as the rankings are.
        momentum: Weight lam of the new batch in the EMA.
        activation: ``none`` ranks raw logits, ``sigmoid`` scores in (0, 1).
        score_penalty: Weight of the score regulariser, which keeps the
            positives near 0: the AP part does not change when a constant is
            added to all scores.
        penalty_reduction: ``mean``: square of the mean positive score;
            ``sum``: square of the sum (the paper's, grows with the batch).
        scope: ``global``: in distributed training the scores of all ranks
            form one ranking, exactly as in a single process. ``local``: each
            rank ranks its own.
        loss_weight: Factor of the whole loss.
        use_sigmoid: Read by mmdet heads from the config: one output channel
            per class and sigmoid at test time, which keeps the ranking. Only
            True is supported.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        num_classes: int | None = None,
        mode: str = 'flatten',
        reduction: str = 'mean',
        rho: float | str = 'batch',
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
    ) -> None:
        super().__init__(
            num_classes,
            mode,
            activation,
            scope,
            loss_weight,
            use_sigmoid,
            reduction,
        )
        one_of('penalty_reduction', penalty_reduction, ('mean', 'sum'))
        mean_scope = mean_scope or (
            'global' if mode == 'flatten' else 'per_class'
        )
        one_of('mean_scope', mean_scope, ('global', 'per_class'))
        if rho != 'batch' and not (isinstance(rho, (int, float)) and rho > 0):
            raise ValueError(
                f"rho must be a number > 0 or 'batch', got {rho!r}"
            )
        if score_penalty < 0:
            raise ValueError(
                f'score_penalty must be >= 0, got {score_penalty!r}'
            )
        if mean_scope == 'per_class' and mode == 'flatten':
            raise ValueError("mean_scope='per_class' needs mode='per_class'")
        if mean_scope == 'per_class' and num_classes is None:
            raise ValueError(
                "mean_scope='per_class' needs num_classes: give the number of "
                'classes of the data set'
            )
        self.rho = None if rho == 'batch' else float(rho)
        self.surrogate = build_surrogate(surrogate, tau)
        self.bound = self.surrogate.bound(*score_range)
        self.a, self.t, self.eps = a, t, eps
        self.score_penalty = score_penalty
        self.penalty_reduction = penalty_reduction
        size = num_classes if mean_scope == 'per_class' else 1
        self.mean_positive = MeanPositiveScore(size, momentum, mean_mode)

    def list_losses(self, lists: RankedLists) -> Tensor:
        """Stable AP of the lists and the score regulariser."""
        pos, pos_mask = lists.pos, lists.pos_mask
        mu = self.mean_positive.update(
            pos, pos_mask, lists.state_group, lists.list_classes
        )
        terms = stable_ap_terms(
            pos,
            lists.scores,
            mu,
            surrogate=self.surrogate,
            bound=self.bound,
            a=self.a,
            t=self.t,
            eps=self.eps,
            rho=self.rho,
            pos_mask=pos_mask,
            neg_mask=lists.neg_mask,
            group=lists.group,
        )
        loss = self.reduce_lists(terms.loss, terms.has_positive)
        penalty = self.score_penalty * self._score_offset(pos, pos_mask)
        self._note(terms, mu, pos_mask, penalty)
        # Without a positive both parts are 0 and still hang on the scores,
        # through the empty gather: DDP finds no unused parameter.
        loss = loss + penalty
        return loss.to(torch.promote_types(pos.dtype, torch.float32))

    def logit_centre(self) -> Tensor:
        """Mean positive score as a raw score, (1,) or (C,)."""
        mean = self.mean_positive.mean
        return mean.logit(1e-6) if self.activation == 'sigmoid' else mean

    def _score_offset(self, pos: Tensor, pos_mask: Tensor) -> Tensor:
        total = torch.where(pos_mask, pos.double(), 0).sum()
        if self.penalty_reduction == 'mean':
            total = total / pos_mask.sum().clamp(min=1)
        return total.square()

    @torch.no_grad()
    def _note(
        self, terms, mu: Tensor, pos_mask: Tensor, penalty: Tensor
    ) -> None:
        lists = terms.has_positive.sum().clamp(min=1)
        count = pos_mask.sum().clamp(min=1)
        mean_weight = terms.weight.sum() / count
        spread = torch.where(pos_mask, terms.weight - mean_weight, 0)
        self.diagnostics = {
            'argument': torch.where(
                terms.has_positive, terms.argument, 0
            ).sum()
            / lists,
            'mean_positive': mu.mean(),
            'weight_spread': (spread.square().sum() / count).sqrt()
            / mean_weight.clamp(min=1e-12),
            'score_penalty': penalty.detach(),
            'num_positive': pos_mask.sum(),
        }
