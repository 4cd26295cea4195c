"""Mean pointwise loss of pairs whose labels are known."""

import torch
from torch import Tensor

from mmrank.losses.options import NamedSettings
from mmrank.tensors import check_tensors

from .pair_embeddings import check_widths, common_dtype, embedding_index
from .pointwise import Pointwise, build_pointwise


class LabelledPairLoss(NamedSettings):
    """Loss (8) of naive and of cross sampling: ``mean l(Y_ij, s_ij)``.

    Source: "in-batch bias of two-tower models", sections 2.1 and 3.2. With
    ``mmrank.NaivePairSampler`` or ``mmrank.CrossPairSampler`` its expectation is the full objective
    (5). Over ranks it is a mean, so the ranks' equal shares of a batch return what a single process
    returns.

    **Half precision.** See :class:`InBatchLoss`.

    Args:
        pointwise: ``square``, ``logistic``, or a :class:`mmrank.functional.Pointwise`.
        loss_weight: Factor of the loss.
    """

    takes_labels = True

    def __init__(self, pointwise: str | Pointwise = 'square', loss_weight: float = 1.0) -> None:
        super().__init__()
        self.pointwise = build_pointwise(pointwise)
        self.loss_weight = loss_weight

    def forward(
        self,
        left: Tensor,
        right: Tensor,
        is_positive: Tensor,
        left_index: Tensor,
        right_index: Tensor,
    ) -> Tensor:
        """Loss of a batch, >= 0, of (U, D) and (V, D) embeddings and their rows that make pairs.

        ``is_positive`` are (B,) bool, one for each pair of the (B,) indices; or (R, C), for all
        combinations of (R,) left and (C,) right ones. ValueError or TypeError if something does not
        fit; on a GPU an index out of range is a device-side assertion.
        """
        check_tensors(left=left, right=right, is_positive=is_positive)
        sizes = len(left_index), len(right_index)
        paired = is_positive.dim() == 1 and sizes[0] == sizes[1]
        expected = sizes[:1] if paired else sizes
        if is_positive.shape != expected or not is_positive.numel():
            raise ValueError(
                f'is_positive must be {expected} to fit the pairs, and not '
                f'empty, got {tuple(is_positive.shape)}'
            )
        if is_positive.dtype != torch.bool:
            raise TypeError(
                f'is_positive must be bool, got {is_positive.dtype}; compare the labels: labels > 0'
            )
        left_rows = embedding_index('left', left, left_index, sizes[0])
        right_rows = embedding_index('right', right, right_index, sizes[1])
        check_widths(left, right)
        dtype = common_dtype(left, right)
        left = left.to(dtype).index_select(0, left_rows)
        right = right.to(dtype).index_select(0, right_rows)
        with torch.autocast(left.device.type, enabled=False):
            scores = (left * right).sum(1) if paired else left @ right.t()
            losses = torch.where(
                is_positive, self.pointwise.positive(scores), self.pointwise.negative(scores)
            )
        return self.loss_weight * losses.mean()
