"""Partial AUC with state of each positive: LibAUC's SOPA, SOPA-s and SOTA-s."""

import math

import torch
from torch import Tensor

from mmrank.checks import check_positive
from mmrank.distributed import all_gather_lists
from mmrank.errors import UserError
from mmrank.losses.auc.weighted_sums import ThresholdedSum, TiltedSum, weighted_sums
from mmrank.losses.options import ListOptions, Unpack
from mmrank.losses.ranking.base import RankedLists
from mmrank.state.positive_history import (
    PositiveState,
    RunningLogMean,
    SampleThresholds,
    SampleTilts,
)

from .history_loss import HistoryLoss, mean_of


class PartialAUCLoss(HistoryLoss):
    """Pairs of hard negatives, and of hard positives, weigh more than others.

    ``mean_ij p_ij l(s_i - t_j)`` with constant weights p and the squared hinge ``l(x) = max(0, 1 -
    x/margin)^2``. What the weights need of the data set is kept for each positive, see
    :class:`HistoryLoss`: a batch shows few of the highest negatives. Source: Zhu et al., When
    AUC meets DRO, ICML 2022.

    - One-way, soft (SOPA-s), the default: ``p_ij = exp(l_ij/lam) / u_i``, u the moving average of
      ``mean_j exp(l_ij/lam)``. It descends ``mean_i lam log u_i``.
    - Two-way (SOTA-s), with ``lam_pos``: ``p_ij = u_i^(lam/lam_pos - 1) exp(l_ij/lam) / w``, w the
      moving average of ``mean_i u_i^(lam/lam_pos)``.
    - One-way (SOPA), with ``max_fpr``: ``p_ij = [l_ij > s_i] / max_fpr``, s a threshold that is
      moved until the share ``max_fpr`` of the negatives is above it.

    :class:`AUCLoss` with ``max_fpr`` has the highest negatives of the batch, without state. The
    authors' l is ``margin^2`` times ours, so their Lambda and tau are ``margin^2`` times lam and
    lam_pos; their u and w start at 0, ours at what the first batch says.

    Args:
        num_samples: Number of samples in the training set, or more.
        num_classes: Number of classes C.
        lam: Temperature of the negatives, > 0: the smaller, the fewer count. The authors tune it in
            0.1 to 10. Without effect with ``max_fpr``.
        lam_pos: Temperature of the positives, > 0. None: all positives count alike.
        max_fpr: Share of the negatives that count, in (0, 1]. None: by ``lam``.
        eta: Step of the thresholds of ``max_fpr``, > 0.
        margin: Margin of the squared hinge in units of the (activated) scores, > 0.
        gamma: Weight of the batch in the moving averages, in (0, 1].
        mode: ``per_class``: one ranking per class. ``flatten``: one in all.
        load_state: False resets the state of the positives when a checkpoint is loaded.
        storage: See :class:`SOAPLoss`.
        **kwargs: ``activation``, ``scope``, ``loss_weight``, ``use_sigmoid`` and ``reduction`` of
            :class:`mmrank.losses.RankingLoss`.

    Raises:
        ValueError, UserError: On a setting outside its range, or that another leaves without use.
    """

    def __init__(
        self,
        num_samples: int,
        num_classes: int = 1,
        lam: float = 1.0,
        lam_pos: float | None = None,
        max_fpr: float | None = None,
        eta: float = 0.1,
        margin: float = 1.0,
        gamma: float = 0.9,
        mode: str = 'per_class',
        load_state: bool = True,
        storage: str = 'device',
        **kwargs: Unpack[ListOptions],
    ) -> None:
        super().__init__(num_classes=num_classes, mode=mode, **kwargs)
        check_positive(margin=margin, lam=lam)
        if lam_pos is not None:
            check_positive(lam_pos=lam_pos)
        if max_fpr is not None and lam_pos is not None:
            raise UserError(
                f'lam_pos={lam_pos!r} has no effect with max_fpr={max_fpr!r}: the thresholds have '
                'no weight of a positive. Fix: leave one of them out'
            )
        self.margin = margin
        self.lam = lam
        self.power = None if lam_pos is None else lam / lam_pos
        self.state: PositiveState
        if max_fpr is not None:
            self.state = SampleThresholds(
                num_samples, num_classes, max_fpr, eta, load_state, storage
            )
        else:
            self.state = SampleTilts(num_samples, num_classes, gamma, load_state, storage)
        if self.power is not None:
            self.norm = RunningLogMean(num_classes if mode == 'per_class' else 1, gamma)

    @property
    def history(self) -> PositiveState:
        return self.state

    def list_losses(self, lists: RankedLists) -> Tensor:
        number = lists.num_negatives()[:, None]
        if isinstance(self.state, SampleThresholds):
            factor, sums = self._above_thresholds(lists, number, self.state)
        else:
            factor, sums = self._tilted(lists, number)
        mask = lists.pos_mask
        # Before the product: a NaN there would reach the gradient.
        factor = torch.where(mask & (number > 0), factor, 0).detach()
        losses = (factor * sums).sum(1) / mask.sum(1).clamp(min=1)
        return self.reduce_lists(losses, lists.has_positive)

    def _above_thresholds(
        self, lists: RankedLists, number: Tensor, state: SampleThresholds
    ) -> tuple[Tensor, Tensor]:
        """(L, 1) and (L, P) factors of a positive and its weighted sums."""
        thresholds = state.values_at(self.history_index(lists))[0]
        sums, above, _ = weighted_sums(lists, ThresholdedSum(self.margin, thresholds))
        # Without negatives it is NaN, which is not stored.
        self.remember((above / number)[None], lists)
        self._watch(lists, threshold=thresholds)
        return 1 / (state.max_fpr * number.clamp(min=1)), sums

    def _tilted(self, lists: RankedLists, number: Tensor) -> tuple[Tensor, Tensor]:
        """(L, P) factors of a positive and its weighted sums."""
        sums, total, most = weighted_sums(lists, TiltedSum(self.margin, self.lam))
        log_batch = (most + (total / number).log())[None]
        log_u = self.state.step(self.history_index(lists), log_batch)[0]
        self.remember(log_batch, lists)
        self._watch(lists, objective=self.lam * log_u)
        log_factor = most - log_u
        if self.power is not None:
            powers = self.power * log_u
            log_factor = log_factor + powers - self._log_norm(powers, lists)[:, None]
        return log_factor.exp() / number, sums

    def _log_norm(self, powers: Tensor, lists: RankedLists) -> Tensor:
        """(L,) log w after the powers of u of the batch, of all ranks."""
        mask = lists.pos_mask
        if lists.state_group is not None:
            powers, mask = all_gather_lists(powers, mask, lists.state_group)
        log_sum = torch.where(mask, powers, -math.inf).logsumexp(1)
        return self.norm.update(log_sum - mask.sum(1).clamp(min=1).log())

    def _watch(self, lists: RankedLists, **values: Tensor) -> None:
        mask = lists.pos_mask
        self.diagnostics = {name: mean_of(x, mask).detach() for name, x in values.items()}
