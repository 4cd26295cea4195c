"""CyCLIP: similarities of two modalities that should agree."""

import torch
from torch import Tensor

from mmrank.autograd import Function, once_differentiable
from mmrank.checks import check_not_negative
from mmrank.losses.options import CLIPOptions, Unpack

from .base import ContrastedBatch
from .clip import CLIPLoss
from .terms import BLOCK_ENTRIES, similarity_strips


class _CyclicConsistency(Function):
    """Both sums from the sums and differences of the two views.

    With ``x_jk = <I_j - T_j, I_k + T_k>`` the difference across is ``(x_kj - x_jk) / 2`` and the
    one within ``(x_jk + x_kj) / 2``: one product serves both, and a small difference is not one of
    large numbers.
    """

    @staticmethod
    def forward(ctx, gap, total, all_gap, all_total):
        ctx.mirrored = all_gap is None
        if ctx.mirrored:
            all_gap = gap
            all_total = total
        ctx.save_for_backward(gap, total, all_gap, all_total)
        cross = gap.new_zeros(len(gap))
        within = gap.new_zeros(len(gap))
        for part, first in _strips(gap, all_gap, ctx.mirrored):
            x = gap[part] @ all_total[first:].t()
            y = total[part] @ all_gap[first:].t()
            later = slice(part.stop, None)
            for own, difference in ((cross, x - y), (within, x.add_(y))):
                squares = difference.square_()
                own[part] += squares.sum(1)
                if ctx.mirrored:
                    own[later] += squares[:, part.stop - first :].sum(0)
        return cross.mul_(0.25), within.mul_(0.25)

    @staticmethod
    @once_differentiable('cyclic_consistency')
    def backward(ctx, of_cross, of_within):
        gap, total, all_gap, all_total = ctx.saved_tensors
        of_gap = torch.zeros_like(gap)
        of_total = torch.zeros_like(total)
        of_all = of_gap, of_total
        if not ctx.mirrored:
            of_all = torch.zeros_like(all_gap), torch.zeros_like(all_total)
        with torch.autocast(gap.device.type, enabled=False):
            for part, first in _strips(gap, all_gap, ctx.mirrored):
                x = gap[part] @ all_total[first:].t()
                y = total[part] @ all_gap[first:].t()
                # In the mirrored entries, which belong to the same strip, each difference counts
                # for both of its samples.
                cross = of_cross[part, None]
                within = of_within[part, None]
                if ctx.mirrored:
                    cross = cross + of_cross[first:]
                    within = within + of_within[first:]
                difference = (x - y).mul_(cross)
                x.add_(y).mul_(within)
                of_x = x + difference
                of_y = x.sub_(difference)
                if ctx.mirrored:
                    # Both entries of a pair lie in the strip's own columns.
                    of_y[:, : part.stop - first] = 0
                of_gap[part].addmm_(of_x, all_total[first:], alpha=0.5)
                of_all[1][first:].addmm_(of_x.t(), gap[part], alpha=0.5)
                of_total[part].addmm_(of_y, all_gap[first:], alpha=0.5)
                of_all[0][first:].addmm_(of_y.t(), total[part], alpha=0.5)
        if ctx.mirrored:
            return of_gap, of_total, None, None
        return of_gap, of_total, *of_all


def _strips(rows: Tensor, columns: Tensor, mirrored: bool):
    """See :func:`similarity_strips`; of half the size, for two products."""
    return similarity_strips(len(rows), len(columns), rows.size(1), mirrored, BLOCK_ENTRIES // 2)


def cyclic_consistency(
    view1: Tensor, view2: Tensor, all_view1: Tensor | None = None, all_view2: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Two (n,) squared differences of similarities, >= 0, at least float32: across and within.

    For pair j of images I and texts T, summed over the pairs k: ``(<I_j, T_k> - <I_k, T_j>)^2``
    across and ``(<I_j, I_k> - <T_j, T_k>)^2`` within the modalities. Source: Goel et al., CyCLIP,
    NeurIPS 2022, eq. 3 and 4; the mean over j is the paper's loss. Differentiable once. The pairs k
    are the (M, D) of all ranks; None: the batch.
    """
    mirrored = all_view1 is None or all_view1 is view1
    dtype = torch.promote_types(view1.dtype, torch.float32)
    view1 = view1.to(dtype)
    view2 = view2.to(dtype)
    with torch.autocast(view1.device.type, enabled=False):
        gap = view1 - view2
        total = view1 + view2
        if mirrored:
            return _CyclicConsistency.apply(gap, total, None, None)
        all_view1 = all_view1.to(dtype)
        all_view2 = all_view2.to(dtype)
        return _CyclicConsistency.apply(gap, total, all_view1 - all_view2, all_view1 + all_view2)


class CyCLIPLoss(CLIPLoss):
    """CLIP's loss and two that make the similarities consistent.

    The similarity of an image and another pair's text should equal the one of the swapped text and
    image, and the similarity of two images the one of their texts. Source: Goel et al., CyCLIP:
    Cyclic Contrastive Language-Image Pretraining, NeurIPS 2022.

    Args:
        cross_weight: Weight of the consistency across modalities.
        in_weight: Weight of that within modalities; the paper has 0.25 for both.
        **kwargs: As for :class:`CLIPLoss`.
    """

    def __init__(
        self, cross_weight: float = 0.25, in_weight: float = 0.25, **kwargs: Unpack[CLIPOptions]
    ) -> None:
        super().__init__(**kwargs)
        check_not_negative(cross_weight=cross_weight, in_weight=in_weight)
        self.cross_weight = cross_weight
        self.in_weight = in_weight

    def row_losses(self, batch: ContrastedBatch, sample_idx: Tensor | None, group) -> Tensor:
        """CLIP's loss and the weighted inconsistency of each sample."""
        cross, within = cyclic_consistency(
            batch.view1, batch.view2, batch.all_view1, batch.all_view2
        )
        self.diagnostics |= {
            'cross_inconsistency': cross.detach().sum() / max(len(cross), 1),
            'in_inconsistency': within.detach().sum() / max(len(within), 1),
        }
        return (
            super().row_losses(batch, sample_idx, group)
            + self.cross_weight * cross
            + self.in_weight * within
        )
