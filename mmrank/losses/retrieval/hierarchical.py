"""H-AP and NDCG of labels on several levels, by an upper bound of each rank."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from mmrank.distributed import join
from mmrank.errors import UserError
from mmrank.losses.base import Losses, StatelessRankingLoss
from mmrank.losses.embeddings import EmbeddingBatch
from mmrank.losses.lists import RankedLists, negatives_of_all_ranks, ranked_lists
from mmrank.losses.pairs_smooth import Surrogate, pairwise_surrogate_sum, sum_over_negatives
from mmrank.losses.plain_lists import like_scores, split_lists
from mmrank.settings import check_not_negative
from mmrank.tensors import as_divisor, check_tensors, whole_numbers


class _SupRankStep(Surrogate):
    """``sigmoid(z/tau)`` for ``z = -x <= 0``, ``1/2`` more up to 0.05, then a line of slope 100.

    The slope never vanishes for a negative far above a positive; at least 1 there, at most 1/2
    below. Source: HAPPIER (ECCV 2022), eq. 6, continuous at 0.05 as in the code of SupRank.
    """

    in_float32 = True

    @property
    def slope_factor(self) -> float:
        return -1 / self.tau

    def terms(self, x: Tensor, values: bool = True, slopes: Tensor | None = None) -> Tensor | None:
        # Not of the class or the module: the compiler makes those numbers that may change.
        delta = 0.05
        slope = 100.0
        # By arithmetic: a choice by a mask takes a CPU ten times as long.
        step = x.clamp(min=-delta).mul_(-1 / self.tau).sigmoid_()
        is_above = torch.empty_like(x)
        if slopes is not None:
            torch.addcmul(step, step, step, value=-1, out=slopes)
            end = 1 / (1 + math.exp(-delta / self.tau))
            torch.lt(x, -delta, out=is_above)
            slopes.add_(is_above, alpha=slope * self.tau - end * (1 - end))
        if not values:
            return None
        step.add_(torch.lt(x, 0, out=is_above), alpha=0.5)
        return step.sub_(x.add_(delta).clamp_(max=0), alpha=slope)


def hap_loss(
    scores: Tensor,
    levels: Tensor,
    *,
    mask: Tensor | None = None,
    alpha: float = 1.0,
    tau: float = 0.01,
) -> Tensor:
    """Upper bound of 1 - H-AP of each list.

    ``1 - (1 / sum_i u_i) sum_i H_i / r_i`` with ``H_i = sum_{k at or above i} min(u_i, u_k)``, a
    constant, and ``r_i`` the number of scores at or above i of its level or more, a constant, plus
    ``sum_k step(s_k - s_i)`` over the lower levels, see :class:`_SupRankStep`. The relevance of
    level l of L is ``u = (l/L)^alpha / n_l``, with n_l scores of just that level in the list. A tie
    with a lower level counts as half in H too, as the step of 0 is 1/2.
    Source: Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval
    (HAPPIER), ECCV 2022, eqs. 2 to 7.

    See :func:`split_lists` for the lists, :class:`mmrank.losses.HAPLoss` for the options.
    ``levels`` has the shape of the scores: the integer number of levels that are shared with the
    query, 0 for a negative; L is the largest. A level of few scores may have more relevance than a
    finer one of many, and then belongs above it. One level is AP with that bound (ROADMAP's).

    Example:
        >>> hap_loss(torch.tensor([0.9, 0.5, 0.2, -0.5]), torch.tensor([2, 0, 1, 0]))
        tensor(0.3099)
    """
    check_not_negative(alpha=alpha)
    lists = _levelled(scores, levels, mask)
    return like_scores(_hap(lists, _SupRankStep(tau), alpha), scores)


def ndcg_loss(
    scores: Tensor, levels: Tensor, *, mask: Tensor | None = None, tau: float = 0.01
) -> Tensor:
    """Upper bound of 1 - NDCG of each list.

    ``1 - DCG / IDCG`` with ``DCG = sum_i (2^l_i - 1) / log2(1 + r_i)``, l the levels and r the
    ranks of :func:`hap_loss`, and IDCG the best ranking's DCG. Source: Ramzi et al., Optimization
    of Rank Losses for Image Retrieval (SupRank), 2025. Arguments and result: see :func:`hap_loss`.

    Example:
        >>> ndcg_loss(torch.tensor([0.9, 0.5, 0.2, -0.5]), torch.tensor([2, 0, 1, 0]))
        tensor(0.1174)
    """
    lists = _levelled(scores, levels, mask)
    return like_scores(_ndcg(lists, _SupRankStep(tau)), scores)


def _levelled(scores: Tensor, levels: Tensor, mask: Tensor | None) -> RankedLists:
    check_tensors(levels=levels)
    levels = whole_numbers('levels', levels, 'mask=levels >= 0 with levels.clamp(min=0)')
    return split_lists(scores, levels > 0, mask, levels.double())


def levels_of(lists: RankedLists) -> Tensor:
    """(L, P) float64 levels of the positives, 0 for padding; 1 where the labels are 0 and 1."""
    if lists.values is None:
        return lists.pos_mask.double()
    return torch.where(lists.pos_mask, lists.values.double(), 0)


def graded_entries(lists: RankedLists) -> tuple[Tensor, Tensor, Tensor]:
    """(L, M) scores of all ranks, positives first, their float64 levels, how often each counts."""
    negatives, counts = negatives_of_all_ranks(lists.scores, lists)
    scores = join([lists.pos, negatives], 1)
    level = torch.nn.functional.pad(levels_of(lists), (0, negatives.size(1)))
    return scores, level, torch.cat([lists.positives, counts], 1)


def gains(level: Tensor) -> Tensor:
    """(L, M) gains ``2^l - 1`` over the power of two of the largest level, which may be thousands.

    Shares of them have the same bits.
    """
    largest = level.amax(1, keepdim=True) if level.size(1) else 0
    return torch.exp2(level - largest) - torch.exp2(torch.zeros_like(level) - largest)


def _ranks(lists: RankedLists, step: _SupRankStep) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
    """(L, P) ranks, levels, and by level m the positives of it at or above each positive."""
    pos = lists.pos
    mask = lists.pos_mask
    level = levels_of(lists)
    numbers = range(1, (lists.num_levels or 1) + 1)
    if lists.num_levels is None and lists.values is not None:
        numbers = level[level > 0].unique().tolist()
    with torch.no_grad():
        ordered, order = torch.where(mask, -pos, torch.inf).sort(1)
        begin = torch.searchsorted(ordered, -pos.detach())
        end = torch.searchsorted(ordered, -pos.detach(), right=True)
        sorted_level = level.gather(1, order)
        counts = lists.positives.double().gather(1, order)
        rank = torch.zeros_like(level)
        found = {}
        for m in numbers:
            count = torch.nn.functional.pad((counts * (sorted_level == m)).cumsum(1), (1, 0))
            at_or_above = count.gather(1, end)
            above = count.gather(1, begin)
            found[m] = torch.where(level <= m, at_or_above, (at_or_above + above) / 2)
            rank = rank + torch.where(level <= m, at_or_above, 0)
    rank = rank + sum_over_negatives(lists, step)
    for m in numbers[1:]:
        own = mask & (level == m)
        lower = lists.positives * (level < m)
        rank = rank + pairwise_surrogate_sum(
            pos, pos, step, pos_mask=own, neg_mask=lower, on_host=lists.on_host
        )
    return rank, level, found


def _share(lists: RankedLists, rank: Tensor, gain: Tensor, best: Tensor) -> Tensor:
    """(L,) losses ``1 - sum_i gain_i / rank_i / best``."""
    mask = lists.pos_mask
    got = torch.where(mask, lists.positives * gain / torch.where(mask, rank, 1), 0).sum(1)
    return torch.where(lists.has_positive, 1 - got / as_divisor(best), 0)


def _hap(lists: RankedLists, step: _SupRankStep, alpha: float) -> Tensor:
    rank, level, found = _ranks(lists, step)
    with torch.no_grad():
        relevance = {}
        own = torch.zeros_like(level)
        for m in found:
            number = (lists.positives * (level == m)).double().sum(1, keepdim=True)
            relevance[m] = (m / max(found)) ** alpha / as_divisor(number)
            own = torch.where(level == m, relevance[m], own)
        gain = torch.zeros_like(level)
        for m, x in found.items():
            gain = gain + x * torch.minimum(own, relevance[m])
    return _share(lists, rank, gain, (lists.positives * own).sum(1))


def _ndcg(lists: RankedLists, step: _SupRankStep) -> Tensor:
    if lists.weight is not None:
        what = 'NDCG takes no weights but 0 and 1: a place has one score'
        raise UserError(what, 'weight=weight > 0, or mmrank.HAPLoss')
    rank, level, _ = _ranks(lists, step)
    with torch.no_grad():
        place = torch.arange(2, level.size(1) + 2, device=level.device).double().log2()
        gain = gains(level)
        best = (gain.sort(1, descending=True).values / place).sum(1)
    return _share(lists, (1 + rank).log2(), gain, best)


class LevelLoss(StatelessRankingLoss):
    """Base of losses of labels on several levels."""

    takes_levels = True

    def row_values(self, cls_score, target, quality, box_loss, sample_idx) -> Tensor | None:
        """Levels of the entries; None of class indices, and of labels that are 0 and 1."""
        super().row_values(cls_score, target, quality, box_loss, sample_idx)
        if target.dim() == 1 or target.dtype == torch.bool:
            return None
        # A head's labels in (0, 1] are of level 1.
        return self.lists_of(target).double().ceil()

    def embedding_loss(self, batch: EmbeddingBatch) -> Losses:
        if batch.num_levels == 1:
            return super().embedding_loss(batch)
        shared = batch.shared_levels()
        free = ~batch.is_itself
        scores = batch.scores()
        entries = (scores, (shared > 0) & free, (shared == 0) & free, shared.to(scores.dtype))
        settings = self.list_settings(of_queries=True)
        lists = ranked_lists(settings, *entries, **batch.list_options())
        lists = replace(lists, num_levels=batch.num_levels)
        return self.weighted(self.loss_of_parts([lists]))


class HAPLoss(LevelLoss):
    """:func:`mmrank.functional.hap_loss` of a batch.

    In retrieval labels may have several levels, (n, L) of classes from coarse to fine, such as
    family, genus and species: an image that shares the first l levels with the query is of level l.
    With scores the labels are the levels, 0 for a negative, in one list or in the lists of
    ``group=``; class indices have one level.

    The code of HAPPIER counts the query as its first positive and adds 0.1 of a loss with proxies,
    as :class:`mmrank.losses.SumLoss` does with a :class:`mmrank.losses.PMLLoss` as the other part.

    Args:
        alpha: Power of the level in the relevance, >= 0; larger ones weigh the fine levels more.
        tau: Temperature of the step in units of the (activated) scores, > 0; 0.01 is for cosines.
    """

    takes_weights = True

    def __init__(self, alpha: float = 1.0, tau: float = 0.01, **kwargs) -> None:
        super().__init__(**kwargs)
        check_not_negative(alpha=alpha)
        self.surrogate = _SupRankStep(tau)
        self.alpha = alpha

    def losses(self, lists: RankedLists) -> Tensor:
        return _hap(lists, self.surrogate, self.alpha)


class SupAPLoss(StatelessRankingLoss):
    """SupAP: an upper bound of 1 - AP, whose slope does not vanish for a negative far above.

    :func:`mmrank.functional.hap_loss` with one level; in retrieval the finest. Source: Ramzi et
    al., Robust and Decomposable Average Precision for Image Retrieval (ROADMAP), NeurIPS 2021,
    section 3.1. The authors' lists hold the query itself, as a first positive; their settings print
    the step at 0.05 as 1.44, here it is continuous.

    Args:
        tau: Temperature of the step in units of the (activated) scores, > 0; 0.01 is for cosines.
    """

    takes_weights = True

    def __init__(self, tau: float = 0.01, **kwargs) -> None:
        super().__init__(**kwargs)
        self.surrogate = _SupRankStep(tau)

    def losses(self, lists: RankedLists) -> Tensor:
        return _hap(lists, self.surrogate, 1.0)


class NDCGLoss(LevelLoss):
    """:func:`mmrank.functional.ndcg_loss` of a batch; see :class:`HAPLoss` for the labels.

    Args:
        tau: Temperature of the step in units of the (activated) scores, > 0; 0.01 is for cosines.
    """

    def __init__(self, tau: float = 0.01, **kwargs) -> None:
        super().__init__(**kwargs)
        self.surrogate = _SupRankStep(tau)

    def losses(self, lists: RankedLists) -> Tensor:
        return _ndcg(lists, self.surrogate)
