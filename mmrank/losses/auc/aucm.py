"""AUC margin loss: the squared pairs of AUC as a game of the scores and three numbers."""

import torch
from torch import Tensor, nn

from mmrank.autograd import inside_transform
from mmrank.distributed import all_reduce_sum
from mmrank.losses.base import StatelessRankingLoss
from mmrank.losses.lists import RankedLists
from mmrank.settings import check_positive
from mmrank.state.base import rows_of_lists
from mmrank.tensors import as_divisor, clamp_infinite


class AUCMLoss(StatelessRankingLoss):
    """AUC margin loss (AUCM) of each list, in linear time.

    ``mean_i (s_i - a)^2 + mean_j (t_j - b)^2 + 2 alpha (margin + mean_j t_j - mean_i s_i) -
    alpha^2`` over positives i and negatives j, which may be negative. The scores, a and b minimise
    it, alpha >= 0 maximises it. At the best a, b and alpha > 0 it is ``mean_ij (margin - s_i +
    t_j)^2``. Source: Yuan et al., Large-scale Robust Deep AUC Maximization, ICCV 2021:
    ``version='v2'`` of MONAI, and ``'v1'`` of LibAUC and MONAI over ``p (1 - p)``, p the share of
    positives in the batch.

    ``a``, ``b`` and ``alpha`` are (1,) or (C,) parameters: give ``loss.parameters()`` to any
    optimiser, without weight decay. The gradient of alpha has the opposite sign, so that a step
    down raises the loss; in training a call sets an alpha below 0 to 0. LibAUC's PESG also pulls
    the weights to their mean over the last epoch, clips each gradient at 1, and steps alpha by ``2
    (margin + b - a - alpha)``, where the gradient has the means of the batch for a and b. There
    alpha starts at 0, which at the rates of Adam leaves a pull of all scores to 0; here it starts
    at the margin, its best value while positives and negatives have one mean.

    Args:
        num_classes: Number of classes C. Needed for ``mode='per_class'``, where each class has its
            own numbers; else all lists share them.
        margin: By how much the positives should lead, in units of the (activated) scores, > 0.
            The authors take 1 and ``activation='sigmoid'``.
    """

    takes_weights = True
    cost = 'scores'
    a: Tensor
    b: Tensor
    alpha: Tensor

    def __init__(self, num_classes: int | None = None, margin: float = 1.0, **kwargs) -> None:
        super().__init__(num_classes, **kwargs)
        check_positive(margin=margin)
        self.margin = margin
        for name, start in (('a', 0.0), ('b', 0.0), ('alpha', margin)):
            values = torch.full((self.state_size(),), start, dtype=torch.float32)
            self.register_parameter(name, nn.Parameter(values))

    def losses(self, lists: RankedLists) -> Tensor:
        # A clamped value would have no gradient, and not return; torch.func keeps nothing.
        if self.training and not inside_transform():
            self.alpha.data.clamp_(min=0)
        # The value of alpha, and minus its gradient.
        alpha = 2 * self.alpha.detach() - self.alpha
        numbers = torch.stack([self.a, self.b, alpha]).double()
        rows = rows_of_lists(lists.list_classes, len(lists.pos), numbers.size(1))
        a, b, alpha = numbers if rows is None else numbers[:, rows]
        number = lists.num_positives()
        others = lists.num_negatives()
        pos, pos_square = _moments(lists.pos, lists.positives) / as_divisor(number)
        sums = all_reduce_sum(_moments(lists.scores, lists.negatives), lists.group)
        neg, neg_square = sums / as_divisor(others)
        distances = pos_square - 2 * a * pos + a.square() + neg_square - 2 * b * neg + b.square()
        losses = distances + 2 * alpha * (self.margin + neg - pos) - alpha.square()
        return torch.where((number > 0) & (others > 0), losses, 0)


def _moments(scores: Tensor, counts: Tensor) -> Tensor:
    """(2, L) float64 sums of (L, N) scores and of their squares."""
    x = torch.where(counts > 0, clamp_infinite(scores.double()), 0)
    return torch.stack([(counts * x).sum(1), (counts * x.square()).sum(1)])
