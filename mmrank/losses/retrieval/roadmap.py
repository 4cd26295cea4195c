"""ROADMAP: average precision by an upper bound of each rank, and margins that all queries share."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmrank.checks import check_within
from mmrank.distributed import all_reduce_sum
from mmrank.losses.base import StatelessRankingLoss
from mmrank.losses.embeddings import EmbeddingBatch
from mmrank.losses.lists import RankedLists, all_positives
from mmrank.tensors import as_divisor, clamp_infinite

from .hierarchical import HAPLoss


class SupAPLoss(HAPLoss):
    """SupAP: an upper bound of 1 - AP, whose slope does not vanish for a negative far above.

    :class:`HAPLoss` of labels on one level; of several it reads the finest. Source: Ramzi et al.,
    Robust and Decomposable Average Precision for Image Retrieval (ROADMAP), NeurIPS 2021, section
    3.1. The authors' lists hold the query itself, as a first positive; their settings print the
    step at 0.05 as 1.44, here it is continuous.

    Args:
        tau: Temperature of the step in units of the (activated) scores, > 0; 0.01 is for cosines.
        **kwargs: See :class:`mmrank.losses.RankingLoss`.
    """

    takes_levels = False
    fixed_settings = ('alpha',)

    def __init__(self, tau: float = 0.01, **kwargs) -> None:
        super().__init__(tau=tau, **kwargs)

    def embedding_loss(self, batch: EmbeddingBatch) -> Tensor:
        return StatelessRankingLoss.embedding_loss(self, batch)


class ROADMAPLoss(SupAPLoss):
    """ROADMAP: SupAP, and a contrastive part by which the scores of all queries compare.

    ``(1 - lam) SupAP + lam (mean (0.9 - s)_+ + mean (t - 0.6)_+)`` over the positives s below 0.9
    and the negatives t above 0.6 of the whole batch. AP of a batch does not say how the scores of
    one batch compare with those of another; the margins do. Source: Ramzi et al., Robust and
    Decomposable Average Precision for Image Retrieval, NeurIPS 2021, section 3.2. The paper
    averages over all pairs of a query; the authors' code, as here, over those that violate a
    margin. It adds both parts: ``lam=0.5, loss_weight=2``.

    Args:
        lam: Weight of the contrastive part, in [0, 1].
        **kwargs: See :class:`SupAPLoss`.
    """

    takes_weights = True
    pos_margin = 0.9
    neg_margin = 0.6

    def __init__(self, lam: float = 0.5, **kwargs) -> None:
        super().__init__(**kwargs)
        check_within('[0, 1]', lam=lam)
        self.lam = lam

    def part_losses(self, parts: Sequence[RankedLists]) -> Tensor:
        ranked = super().part_losses(parts)
        pos, counts = all_positives(parts)
        violations = [_violations(self.pos_margin - pos, counts)]
        negatives = [_violations(x.scores - self.neg_margin, _negatives(x)) for x in parts]
        violations.append(all_reduce_sum(torch.stack(negatives).sum(0), parts[0].group))
        total, number = torch.stack(violations, 1)
        return (1 - self.lam) * ranked + self.lam * (total / as_divisor(number)).sum()


def _negatives(lists: RankedLists) -> Tensor:
    """(L, N) how often each score counts as a negative of all lists."""
    weight = lists.list_weight
    return lists.negatives if weight is None else lists.negatives * weight[:, None]


def _violations(excess: Tensor, counts: Tensor) -> Tensor:
    """(2,) float64 sum and number of what is above 0."""
    excess = clamp_infinite(torch.where(counts > 0, excess.double(), 0)).relu()
    return torch.stack([(counts * excess).sum(), (counts * (excess > 0)).sum()])
