"""FastAP and PNP of pytorch-metric-learning for queries that search a gallery.

The originals take all pairs of their batch, and no gallery.
"""

from typing import Any

import torch
from torch import Tensor

from mmrank.losses.pairs_smooth import Sigmoid, sum_over_negatives
from mmrank.losses.plain_lists import split_lists
from mmrank.losses.ranking.listwise_ap import listwise_ap_loss


def _fast_ap(loss: Any, distances: Tensor, is_positive: Tensor, mask: Tensor) -> Tensor:
    """(Q,) FastAP of (Q, G) squared distances.

    Its histogram is the histogram of list-wise AP with one bin more. Source: Cakir et al., Deep
    Metric Learning to Rank, CVPR 2019.
    """
    score_range = (-float(2**loss.distance.power), 0.0)
    bins = loss.num_bins + 1
    return listwise_ap_loss(
        -distances, is_positive, num_bins=bins, score_range=score_range, mask=mask
    )


#: Of R, the number of negatives above a positive, by the variant.
_PENALTIES = {
    'O': lambda loss, above: above,
    'Ds': lambda loss, above: above.log1p(),
    'Dq': lambda loss, above: 1 - (1 + above) ** -loss.alpha,
    'Iu': lambda loss, above: (1 + above) * above.log1p(),
    'Ib': lambda loss, above: (loss.b * above - (loss.b * above).log1p()) / loss.b**2,
}


def _pnp(loss: Any, cosines: Tensor, is_positive: Tensor, mask: Tensor) -> Tensor:
    """(Q,) means over the positives of a penalty of R, which a sigmoid makes smooth.

    Source: Li et al., Rethinking the Optimization of Average Precision: Only Penalizing Negative
    Instances before Positive Ones is Enough, AAAI 2022.
    """
    lists = split_lists(cosines, is_positive, mask)
    # The surrogate is twice the sigmoid.
    above = sum_over_negatives(lists, Sigmoid(loss.anneal)) / 2
    penalty = torch.where(lists.pos_mask, _PENALTIES[loss.variant](loss, above), 0)
    return penalty.sum(1) / lists.num_positives().clamp(min=1)


#: By name: (Q,) losses of (Q, G) distances, and bool of the positives and of what takes part.
RANKINGS = {'FastAPLoss': _fast_ap, 'PNPLoss': _pnp}
