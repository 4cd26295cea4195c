"""SOAP: average precision from moving averages of each positive."""

from dataclasses import replace

import torch
from torch import Tensor

from mmrank.distributed import all_gather_lists
from mmrank.errors import UserError
from mmrank.losses.base import RankingLoss
from mmrank.losses.lists import RankedLists
from mmrank.losses.pairs_smooth import SquaredHinge, sum_over_negatives, sum_over_positives
from mmrank.settings import check_positive, check_within
from mmrank.state.sample_state import SampleState, check_sample_ids
from mmrank.tensors import as_divisor, check_tensors


def _moving_ranks(old: Tensor, batch: Tensor, gamma: float) -> Tensor:
    """Moving averages of (2, ...) surrogate ranks, ``u <- (1 - gamma) u + gamma g``, float64.

    Source: SOAP (NeurIPS 2021), algorithm 1. A first visit (u = 0) takes g as it is; where g is not
    finite, u stays. Without gradient.
    """
    old = old.detach().double()
    new = batch.detach().double()
    # In float32, as they are kept; the pair moves together.
    finite = new.float().isfinite().all(0)
    mixed = torch.where(old[1] > 0, (1 - gamma) * old + gamma * new, new)
    return torch.where(finite, mixed, torch.where(old[1] > 0, old, new))


class SampleRanks(SampleState):
    """``u_positive`` and ``u_all``, moving averages of the surrogate ranks of each positive.

    0 before the first visit. They are kept for every sample as a positive of every class: (classes
    * samples,) float32, class by class. ``gamma`` is the weight of the batch in (0, 1].
    """

    u_positive: Tensor
    u_all: Tensor

    def __init__(self, num_samples: int, num_classes: int = 1, gamma: float = 0.9) -> None:
        check_within('(0, 1]', gamma=gamma)
        super().__init__(num_samples * num_classes)
        self.num_samples = num_samples
        self.num_classes = num_classes
        self.gamma = gamma
        self.add_state('u_positive', (self.size,))
        self.add_state('u_all', (self.size,))

    def index_of(self, sample_idx: Tensor, device: torch.device) -> Tensor:
        """(n, C) int64 indices of the states, of (n,) ``sample_idx`` in ``[0, num_samples)``."""
        check_sample_ids(sample_idx, sample_idx.numel(), self.num_samples)
        ids = sample_idx.to(device, non_blocking=True).long()
        return ids[:, None] + self.num_samples * torch.arange(self.num_classes, device=device)

    def step(self, index: Tensor, batch: Tensor) -> Tensor:
        """(2, S) float64 after a batch, without storing them, at indices of shape S."""
        entries = self.fetch(index.flatten(), index.device)
        return _moving_ranks(entries.view(2, *index.shape), batch, self.gamma)

    def update(self, index: Tensor, batch: Tensor, counts: Tensor) -> None:
        """Take in (2, S) of a batch, the same on all ranks, if the state moves.

        ``counts`` says how often each positive counts: bool or floats, 0 for padding.
        """
        if self.moves:
            self.take(index.flatten(), batch.flatten(1), counts.flatten())

    def stepped(self, entries: Tensor, batch: Tensor) -> Tensor:
        return _moving_ranks(entries, batch, self.gamma)


def _surrogate_ranks(lists: RankedLists, hinge: SquaredHinge) -> Tensor:
    """(2, L, P) float64 g of each positive: among the positives, and among all scores.

    ``0 < g_1 <= g_2``, 0 at padding; differentiable once.
    """
    # Gradients of both sums are added in float64: where a score is infinite, each alone exceeds
    # float16, and their sum would be NaN.
    lists = replace(lists, pos=lists.pos.double(), scores=lists.scores.double())
    among = sum_over_positives(lists, hinge)
    below = sum_over_negatives(lists, hinge)
    size = lists.num_positives() + lists.num_negatives()
    return torch.stack([among, among + below]) / as_divisor(size)[:, None]


class SOAPLoss(RankingLoss):
    """SOAP: average precision with moving averages of each positive's ranks.

    ``mean_i 1 - u_i1/u_i2``, with u the moving averages of the surrogate ranks ``g_i = mean_s l(s_i
    - s) [1[s is positive], 1]`` over all scores s of the list, s_i itself included, and the squared
    hinge ``l(x) = max(0, 1 - x/margin)^2``. Source: Qi et al., Stochastic Optimization of Areas
    Under Precision-Recall Curves with Provable Convergence, NeurIPS 2021, eq. 3 to 6 (its l is
    ``margin^2`` times ours, a factor that drops out). The averages cover the batches that showed
    the positive. They are saved and the same on all ranks. With ``scope='global'`` they are those
    of a single process, with ``scope='local'`` each rank ranks the positives that it has.

    Args:
        num_samples: Number of samples in the training set, or more.
        num_classes: Number of classes C.
        margin: Margin of the squared hinge in units of the (activated) scores, > 0. The authors
            take 0.6 to 1 for sigmoid scores.
        gamma: Weight of the batch in the moving averages, in (0, 1]. The authors' code has 0.1 to
            0.9, by data set.
    """

    takes_weights = True
    zero_without_positives = True
    keeps_samples = True
    fixed_settings = ('mode',)
    no_groups = 'does not take group. Fix: leave it out'
    no_retrieval = 'keeps averages of the samples of a classifier'
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
        **kwargs,
    ) -> None:
        super().__init__(num_classes=num_classes, mode='per_class', **kwargs)
        check_positive(margin=margin)
        self.num_samples = num_samples
        self.hinge = SquaredHinge(margin)
        self.ranks = SampleRanks(num_samples, num_classes, gamma)

    def row_values(self, cls_score, target, quality, box_loss, sample_idx) -> Tensor:
        """Places of the entries in the state, from the (n,) places of the rows."""
        super().row_values(cls_score, target, quality, box_loss, None)
        check_tensors(sample_idx=sample_idx)
        shape = None if sample_idx is None else tuple(sample_idx.shape)
        if sample_idx is None or shape != (len(cls_score),):
            raise UserError(
                f'{type(self).__name__} needs sample_idx of shape ({len(cls_score)},), got '
                f'{shape}. Fix: loss(scores, labels, sample_idx=the place of each row in the '
                'training set); '
                "mmrank.OneVsRestHead passes it with 'sample_idx' in meta_keys of PackInputs"
            )
        index = self.ranks.index_of(sample_idx, cls_score.device)
        # float64 holds every index.
        return self.lists_of(index).double()

    def list_losses(self, lists: RankedLists) -> Tensor:
        mask = lists.pos_mask
        index = lists.required_values().long()
        batch = _surrogate_ranks(lists, self.hinge)
        moving = self.ranks.step(index, batch)
        # Padding divides by 1, not by 0: a NaN there would reach the gradient.
        among = torch.where(mask, moving[0], 0)
        total = torch.where(mask, moving[1], 1)
        g1, g2 = batch
        # The gradient is ``mean_i (-1/u_i2) grad g_i1 + (u_i1/u_i2^2) grad g_i2``, in which u is a
        # constant; where u is g it is the value's gradient.
        varying = (among / total * g2 - g1) / total
        risk = 1 - among / total + (varying - varying.detach())
        counts = lists.positives
        risk = counts * torch.where(mask, risk, 0)
        losses = risk.sum(1) / as_divisor(lists.num_positives())
        ranks = batch.detach()
        group = lists.state_group
        if group is not None:  # Others have their positives on other ranks.
            rows = torch.cat([index.double()[None], ranks]).flatten(0, 1)
            rows, joined, weight = all_gather_lists(rows, mask, group, lists.pos_weight)
            rows = rows.view(1 + len(ranks), len(joined), -1)
            counts = joined if weight is None else joined * weight
            index = rows[0].long()
            ranks = rows[1:]
        self.ranks.update(index, ranks, counts)
        self.diagnostics = {
            'u_positive': _mean_of(moving[0], mask),
            'u_all': _mean_of(moving[1], mask),
            'argument': _mean_of(moving[1] / moving[0].clamp(min=1e-12) - 1, mask),
        }
        return losses


def _mean_of(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values, 0).sum() / mask.sum().clamp(min=1)
