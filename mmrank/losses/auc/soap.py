"""SOAP: average precision from moving averages of each positive."""

import torch
from torch import Tensor

from mmrank.losses.lists import RankedLists
from mmrank.losses.options import ListOptions, Unpack
from mmrank.losses.pairs import pairwise_surrogate_sum
from mmrank.losses.pairs_smooth import SquaredHinge
from mmrank.state.positive_history import SampleRanks

from .history_loss import HistoryLoss, mean_of


def surrogate_ranks(lists: RankedLists, hinge: SquaredHinge) -> Tensor:
    """(2, L, P) float64 g of each positive: among the positives, and among all scores.

    ``0 < g_1 <= g_2``, 0 at padding; differentiable once.
    """
    # Gradients of both sums are added in float64: where a score is infinite, each alone exceeds
    # float16, and their sum would be NaN.
    pos = lists.pos.double()
    neg = lists.scores.double()
    mask = lists.pos_mask
    among = pairwise_surrogate_sum(pos, pos, hinge, pos_mask=mask, neg_mask=mask)
    below = pairwise_surrogate_sum(
        pos, neg, hinge, pos_mask=mask, neg_mask=lists.is_negative, group=lists.group
    )
    size = (mask.sum(1) + lists.num_negatives()).clamp(min=1)[:, None]
    return torch.stack([among, among + below]) / size


def soap_of_ranks(batch: Tensor, moving: Tensor, mask: Tensor) -> Tensor:
    """(L,) SOAP from (2, L, P) surrogate ranks g and their moving averages u, without gradient.

    The value is ``mean_i 1 - u_i1/u_i2``. The gradient is ``mean_i (-1/u_i2) grad g_i1 +
    (u_i1/u_i2^2) grad g_i2``, in which u is a constant; where u is g it is the value's gradient.
    Source: SOAP (NeurIPS 2021), eq. 5 and 6.
    """
    among, total = moving.detach()
    # Padding divides by 1, not by 0: a NaN there would reach the gradient.
    total = torch.where(mask, total, 1)
    among = torch.where(mask, among, 0)
    g1, g2 = batch
    varying = (among / total * g2 - g1) / total
    risk = 1 - among / total + (varying - varying.detach())
    return torch.where(mask, risk, 0).sum(1) / mask.sum(1).clamp(min=1)


class SOAPLoss(HistoryLoss):
    """SOAP: average precision with moving averages of each positive's ranks.

    ``mean_i 1 - u_i1/u_i2``, with u the moving averages of the surrogate ranks ``g_i = mean_s l(s_i
    - s) [1[s is positive], 1]`` over all scores s of the list, s_i itself included, and the squared
    hinge ``l(x) = max(0, 1 - x/margin)^2``. Source: Qi et al., Stochastic Optimization of Areas
    Under Precision-Recall Curves with Provable Convergence, NeurIPS 2021, eq. 3 to 6 (its l is
    ``margin^2`` times ours, a factor that drops out). The averages cover the batches that showed
    the positive, see :class:`HistoryLoss`.

    Args:
        num_samples: Number of samples in the training set, or more.
        num_classes: Number of classes C.
        margin: Margin of the squared hinge in units of the (activated) scores, > 0. The authors
            take 0.6 to 1 for sigmoid scores.
        gamma: Weight of the batch in the moving averages, in (0, 1]. The authors' code has 0.1 to
            0.9, by data set.
        mode: ``per_class``: one ranking per class. ``flatten``: one in all.
        load_state: False resets the averages when a checkpoint is loaded.
        storage: ``device``: each rank has all averages. ``sharded``: they are spread over the
            ranks, see :class:`mmrank.state.SampleState`.
        **kwargs: ``activation``, ``scope``, ``loss_weight``, ``use_sigmoid`` and ``reduction`` of
            :class:`mmrank.losses.RankingLoss`.
    """

    saturation_advice = (
        'There are too many negatives for a positive: use '
        'mmrank.PositiveRateSampler, or raise the learning rate'
    )

    def __init__(
        self,
        num_samples: int,
        num_classes: int = 1,
        margin: float = 1.0,
        gamma: float = 0.9,
        mode: str = 'per_class',
        load_state: bool = True,
        storage: str = 'device',
        **kwargs: Unpack[ListOptions],
    ) -> None:
        super().__init__(num_classes=num_classes, mode=mode, **kwargs)
        self.hinge = SquaredHinge(margin)
        self.ranks = SampleRanks(num_samples, num_classes, gamma, load_state, storage)

    @property
    def history(self) -> SampleRanks:
        return self.ranks

    def list_losses(self, lists: RankedLists) -> Tensor:
        """SOAP of the lists; their values are places in the state."""
        mask = lists.pos_mask
        batch = surrogate_ranks(lists, self.hinge)
        moving = self.ranks.step(self.history_index(lists), batch)
        losses = soap_of_ranks(batch, moving, mask)
        self.remember(batch, lists)
        self.diagnostics = {
            'u_positive': mean_of(moving[0], mask),
            'u_all': mean_of(moving[1], mask),
            'argument': mean_of(moving[1] / moving[0].clamp(min=1e-12) - 1, mask),
        }
        return self.reduce_lists(losses, lists.has_positive)
