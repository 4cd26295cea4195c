"""CyCLIP: similarities of two modalities that should agree."""

import torch
from torch import Tensor

from mmrank.tensors import at_least_float32

from .base import ContrastedBatch
from .clip import CLIPLoss
from .terms import weighted_sum


def _gap_and_total(view1: Tensor, view2: Tensor) -> tuple[Tensor, Tensor]:
    """Difference and sum of two views, at least float32."""
    view1 = at_least_float32(view1)
    view2 = at_least_float32(view2)
    return view1 - view2, view1 + view2


def _cyclic_consistency(batch: ContrastedBatch) -> tuple[Tensor, Tensor]:
    """Two (n,) squared differences of similarities, at least float32: across and within.

    For pair j of images I and texts T, summed over the pairs k: ``(<I_j, T_k> - <I_k, T_j>)^2``
    across and ``(<I_j, I_k> - <T_j, T_k>)^2`` within the modalities. Source: Goel et al., CyCLIP,
    NeurIPS 2022, eq. 3 and 4; the mean over j is the paper's loss. The pairs k are of all ranks.

    With ``x_jk = <I_j - T_j, I_k + T_k>`` and ``y_jk = <I_j + T_j, I_k - T_k>`` the difference
    across is ``(y - x) / 2`` and the one within ``(x + y) / 2``: one product serves both, and a
    small difference is not one of large numbers.
    """
    weight = batch.gathered.weight
    with torch.autocast(batch.local.ids.device.type, enabled=False):
        gap, total = _gap_and_total(*batch.local.views)
        all_gap = gap
        all_total = total
        if not batch.is_whole:
            all_gap, all_total = _gap_and_total(*batch.gathered.views)
        if len(all_gap) <= 4 * gap.size(1):
            x = gap @ all_total.t()
            y = x.t() if batch.is_whole else total @ all_gap.t()
            across = weighted_sum((x - y).square(), 1, weight)
            return across / 4, weighted_sum((x + y).square(), 1, weight) / 4
        # sum_k <a, b_k> <c_k, d> = a^T (sum_k b_k c_k^T) d, without the matrix of all pairs.
        counted_total = all_total if weight is None else all_total * weight[:, None]
        counted_gap = all_gap if weight is None else all_gap * weight[:, None]
        x_squares = (gap @ (counted_total.t() @ all_total) * gap).sum(1)
        y_squares = (total @ (counted_gap.t() @ all_gap) * total).sum(1)
        products = (gap @ (counted_total.t() @ all_gap) * total).sum(1)
        squares = x_squares + y_squares
        return (squares - 2 * products) / 4, (squares + 2 * products) / 4


class CyCLIPLoss(CLIPLoss):
    """CLIP's loss and two that make the similarities consistent, with a weight of 0.25 each.

    The similarity of an image and another pair's text should equal the one of the swapped text and
    image, and the similarity of two images the one of their texts. Source: Goel et al., CyCLIP:
    Cyclic Contrastive Language-Image Pretraining, NeurIPS 2022.
    """

    takes_labels = False  # a similarity across is to equal its mirror image, whatever the classes
    cross_weight = 0.25
    in_weight = 0.25

    def row_losses(self, batch: ContrastedBatch) -> Tensor:
        cross, within = _cyclic_consistency(batch)
        self.diagnostics['cross_inconsistency'] = batch.mean(cross.detach())
        self.diagnostics['in_inconsistency'] = batch.mean(within.detach())
        return super().row_losses(batch) + self.cross_weight * cross + self.in_weight * within
