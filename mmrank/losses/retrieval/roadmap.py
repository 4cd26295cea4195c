"""ROADMAP: average precision by an upper bound of each rank, and margins that all queries share."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmrank.distributed import all_reduce_sum
from mmrank.losses.lists import RankedLists
from mmrank.settings import check_within
from mmrank.tensors import as_divisor, clamp_infinite

from .hierarchical import SupAPLoss


class ROADMAPLoss(SupAPLoss):
    """ROADMAP: SupAP, and a contrastive part by which the scores of all queries compare.

    ``(1 - lam) SupAP + lam (mean (0.9 - s)_+ + mean (t - 0.6)_+)`` over the positives s below 0.9
    and the negatives t above 0.6 of the whole batch, cosines. AP of a batch does not say how its
    scores compare with the scores of others; the margins do. Source: Ramzi et al., Robust and
    Decomposable Average Precision for Image Retrieval, NeurIPS 2021, section 3.2. The paper's means
    are over all pairs of a query. The authors' code has these, and ``loss_weight=2``.

    Args:
        lam: Weight of the contrastive part, in [0, 1].
    """

    counts_lone_queries = True

    def __init__(self, lam: float = 0.5, **kwargs) -> None:
        super().__init__(**kwargs)
        check_within('[0, 1]', lam=lam)
        self.lam = lam

    def total(self, losses: Tensor, counted: Tensor, parts: Sequence[RankedLists]) -> Tensor:
        ranked = self.reduce_lists(losses, counted)
        positives = [_violations(0.9 - x.pos, x.by_list(x.positives)) for x in parts]
        negatives = [_violations(x.scores - 0.6, x.by_list(x.negatives)) for x in parts]
        # The positives are of all ranks.
        others = all_reduce_sum(torch.stack(negatives).sum(0), parts[0].group)
        total, number = torch.stack([torch.stack(positives).sum(0), others], 1)
        return (1 - self.lam) * ranked + self.lam * (total / as_divisor(number)).sum()


def _violations(excess: Tensor, counts: Tensor) -> Tensor:
    """(2,) float64 sum and number of what is above 0."""
    excess = clamp_infinite(torch.where(counts > 0, excess.double(), 0)).relu()
    return torch.stack([(counts * excess).sum(), (counts * (excess > 0)).sum()])
