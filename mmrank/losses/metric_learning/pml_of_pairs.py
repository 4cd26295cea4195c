"""FastAP and PNP of pytorch-metric-learning for a gallery of its own.

The originals refuse a gallery and take all pairs of their batch. Imports pytorch-metric-learning:
import it where that is known to be there.
"""

from copy import copy

import torch
from pytorch_metric_learning.losses import FastAPLoss, PNPLoss
from torch import Tensor, nn

from mmrank.losses.lists import split_lists
from mmrank.losses.pairs import pairwise_surrogate_sum
from mmrank.losses.pairs_smooth import Sigmoid
from mmrank.losses.ranking.listwise_ap import listwise_ap_loss


class LossOfPairs(nn.Module):
    """Base: each query ranks the pairs that are given; the original's distance and reducer."""

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: tuple[Tensor, ...],
        ref_emb: Tensor,
        ref_labels: Tensor,
    ) -> dict:
        """Losses of the (Q, D) queries that have a positive in the (G, D) gallery ``ref_emb``.

        ``indices_tuple`` has query and gallery indices of the positive pairs, then of the negative
        ones.
        """
        anchors, positives, others, negatives = indices_tuple
        distances = self.distance(embeddings, ref_emb)
        is_positive = torch.zeros_like(distances, dtype=torch.bool)
        is_positive[anchors, positives] = True
        mask = is_positive.clone()
        mask[others, negatives] = True
        has_positive = is_positive.any(1)
        if not has_positive.any():
            return self.zero_losses()
        losses = self.losses_of_queries(distances, is_positive, mask)
        return {
            'loss': {
                'losses': losses[has_positive],
                'indices': has_positive.nonzero()[:, 0],
                'reduction_type': 'element',
            }
        }

    def losses_of_queries(self, distances: Tensor, is_positive: Tensor, mask: Tensor) -> Tensor:
        """(Q,) losses of (Q, G) distances or cosines; what is not in the mask takes no part."""
        raise NotImplementedError


class FastAPOfPairs(LossOfPairs, FastAPLoss):
    """FastAP of queries that search a gallery.

    Its histogram of squared distances is the histogram of list-wise AP with one bin more, so the
    same formula is evaluated there. Source: Cakir et al., Deep Metric Learning to Rank, CVPR 2019.
    """

    def losses_of_queries(self, distances: Tensor, is_positive: Tensor, mask: Tensor) -> Tensor:
        return listwise_ap_loss(
            -distances,
            is_positive,
            num_bins=self.num_bins + 1,
            score_range=(-float(2**self.distance.power), 0.0),
            mask=mask,
        )


class PNPOfPairs(LossOfPairs, PNPLoss):
    """PNP of queries that search a gallery: the mean over the positives of a function of R.

    R is the number of negatives above a positive, by sigmoids. The original counts the query itself
    as a positive, too. Source: Li et al., Rethinking the Optimization of Average Precision: Only
    Penalizing Negative Instances before Positive Ones is Enough, AAAI 2022.
    """

    def losses_of_queries(self, distances: Tensor, is_positive: Tensor, mask: Tensor) -> Tensor:
        lists = split_lists(distances, is_positive, mask)
        surrogate = Sigmoid(self.anneal)  # twice the sigmoid
        sums = dict(pos_mask=lists.pos_mask, neg_mask=lists.negatives)
        above = pairwise_surrogate_sum(lists.pos, lists.scores, surrogate, **sums) / 2
        losses = torch.where(lists.pos_mask, self._penalty(above), 0)
        return losses.sum(1) / lists.num_positives().clamp(min=1)

    def _penalty(self, above: Tensor) -> Tensor:
        if self.variant == 'Ds':
            return above.log1p()
        if self.variant == 'Dq':
            return 1 - (1 + above) ** -self.alpha
        if self.variant == 'Iu':
            return (1 + above) * above.log1p()
        if self.variant == 'Ib':
            return (self.b * above - (self.b * above).log1p()) / self.b**2
        return above


def of_pairs(loss: nn.Module) -> nn.Module:
    """A loss that takes pairs; of FastAP and PNP a copy with the same settings and parts."""
    kind = {FastAPLoss: FastAPOfPairs, PNPLoss: PNPOfPairs}.get(type(loss))
    if kind is not None:
        loss = copy(loss)
        loss.__class__ = kind
    return loss
