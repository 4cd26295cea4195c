"""FastAP of pytorch-metric-learning for a gallery of its own.

Imports pytorch-metric-learning: import it where that is known to be there.
"""

import torch
from pytorch_metric_learning.losses import FastAPLoss
from torch import Tensor

from mmrank.losses.ranking.listwise_ap import listwise_ap_loss


class FastAPOfPairs(FastAPLoss):
    """FastAP of queries that search a gallery.

    The original refuses a gallery and takes all pairs of its batch. Its histogram of squared
    distances is the histogram of list-wise AP with one bin more, so the same formula is evaluated
    there for the pairs that are given, and reduced by the original's reducer. Source: Cakir et al.,
    Deep Metric Learning to Rank, CVPR 2019.
    """

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
        losses = listwise_ap_loss(
            -distances,
            is_positive,
            num_bins=self.num_bins + 1,
            score_range=(-float(2**self.distance.power), 0.0),
            mask=mask,
        )
        return {
            'loss': {
                'losses': losses[has_positive],
                'indices': has_positive.nonzero()[:, 0],
                'reduction_type': 'element',
            }
        }
